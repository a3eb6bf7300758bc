"""Statistics of requests and token gaps, collected batch by batch while a run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from kvsim.analysis.distribution import Distribution
from kvsim.analysis.latency import LATENCIES, latencies, meets
from kvsim.analysis.overload import Backlog, backlog
from kvsim.analysis.tenants import Tenants
from kvsim.tables import RequestTable

if TYPE_CHECKING:
    from kvsim.tables import Floats, Ints

EXACT_LEAPS = 1 << 18
"""Leaps (each with one gap, counted as often as it occurred) up to which ``itl`` is exact."""
MOST_DELAYS = 1 << 17
"""Requests by which the backlog is judged; beyond, every second, fourth, ... one."""


class RunStatistics:
    """Adds up the results of a run; ``slos`` are limits in seconds by name of a latency."""

    def __init__(self, slos: Mapping[str, float] | None = None) -> None:
        self.slos = dict(slos or {})
        self.latencies = {name: Distribution() for name in LATENCIES}
        self.latencies["itl"] = Distribution(EXACT_LEAPS)
        self.completed = self.rejected = self.good = 0
        self.input_tokens = self.output_tokens = self.cached_tokens = 0
        self.preemptions = self.recomputed_tokens = 0
        self.first_arrival = np.inf
        self.last_completion = -np.inf
        self.tenants = Tenants()
        self._delays = _Delays()

    def requests(self, table: RequestTable) -> None:
        """Add requests that ended."""
        if not len(table):
            return
        served = table.served()
        self.rejected += len(table) - len(served)
        self.first_arrival = min(self.first_arrival, float(table.arrival.min()))
        if len(served):
            self._served(served)

    def _served(self, served: RequestTable) -> None:
        measured = latencies(served)
        for name, values in measured.items():
            self.latencies[name].add(values[~np.isnan(values)])
        if self.slos:
            self.good += int(np.count_nonzero(meets(measured, self.slos)))
        self.completed += len(served)
        self.input_tokens += int(served.prompt_tokens.sum())
        self.output_tokens += int(served.output_tokens.sum())
        self.cached_tokens += int(served.cached_tokens.sum())
        self.preemptions += int(served.preemptions.sum())
        self.recomputed_tokens += int(served.recomputed_tokens.sum())
        self.last_completion = max(self.last_completion, float(served.finished.max()))
        self._delays.add(served)
        self.tenants.add(served)

    def gaps(self, seconds: Floats, counts: Ints) -> None:
        """Add gaps between consecutive tokens."""
        self.latencies["itl"].add(seconds, counts)

    @property
    def duration(self) -> float:
        """Seconds from the first arrival to the last completion."""
        return max(0.0, self.last_completion - self.first_arrival) if self.completed else 0.0

    def backlog(self) -> Backlog | None:
        """How queueing delays developed."""
        return self._delays.backlog()


class _Delays:
    """Arrival, queueing delay and service time of every ``stride``-th request."""

    def __init__(self) -> None:
        self._rows = np.empty((0, 3))
        self._stride = 1

    def add(self, served: RequestTable) -> None:
        columns = (
            served.arrival,
            served.scheduled - served.arrival,
            served.finished - served.scheduled,
        )
        rows = np.stack(columns, axis=1)[:: self._stride]
        self._rows = np.concatenate([self._rows, rows])
        while len(self._rows) > MOST_DELAYS:
            self._rows = self._rows[::2].copy()
            self._stride *= 2

    def backlog(self) -> Backlog | None:
        return backlog(*self._rows.T)
