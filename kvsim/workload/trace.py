"""A trace, opened: its format recognised, its requests streamed as often as wanted."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from kvsim.core import Request
from kvsim.errors import ConfigError, TraceError, shown
from kvsim.workload.head import HEAD, LONG_HEAD, Head, read_head
from kvsim.workload.isolation import isolated
from kvsim.workload.ledger import Ledger
from kvsim.workload.options import TraceOptions
from kvsim.workload.order import from_zero, in_time_order, sorted_by_time
from kvsim.workload.readers import READERS
from kvsim.workload.source import Folder, Source, open_source
from kvsim.workload.timeline import (
    gamma_gaps,
    pace,
    redrawn,
    sped_up,
    stretched,
    window,
    within_bounds,
)

UNTIMED = "the trace has no arrival times, all requests arrive at 0; --request-rate spreads them"


class Trace:
    """The requests of a trace, in time order, rows counted from 0. Each iteration reads it anew.

    Nothing but a window of requests is in memory at any time. ``skipped`` and ``quirks`` tell about
    the latest iteration.
    """

    def __init__(self, source: Source, format_name: str, options: TraceOptions) -> None:
        self.name = source.name
        self.format = format_name
        self.options = options
        self._source = source
        self._ledger = Ledger(options.on_bad_row)
        self._digest: str | None = None
        self._reader_options = _reader_options(format_name, options)
        if options.arrival != "as-is" and options.request_rate is None and not self.timed:
            raise ConfigError(
                f"--arrival {options.arrival} without --request-rate: {self.name} has no times, hence "
                "no rate of its own; accepted: --request-rate with a number above 0"
            )

    @property
    def timed(self) -> bool:
        """Whether the format says when requests arrive."""
        return READERS[self.format].timed

    @property
    def skipped(self) -> int:
        """Bad rows that were left out."""
        return self._ledger.skipped

    @property
    def quirks(self) -> list[str]:
        """What was odd about the trace, a line each."""
        untimed = not self.timed and self.options.request_rate is None
        return [UNTIMED] * untimed + self._ledger.quirks()

    def sha256(self) -> str:
        """SHA-256 of the file as it lies on disk, hexadecimal (of a folder: of its files')."""
        if self._digest is None:
            self._digest = self._source.sha256()
        return self._digest

    def __iter__(self) -> Iterator[Request]:
        requests = isolated(self._retimed(), self.options.isolation, self.name)
        row = 0
        for request in requests:
            if request.row != row:
                request = request._replace(row=row)
            row += 1
            yield request
        if row == 0:
            raise self._nothing()

    def _recorded(self) -> Iterator[Request]:
        """The part of the trace that was asked for, on its own timeline."""
        options = self.options
        self._ledger = ledger = Ledger(options.on_bad_row)
        rows = iter(READERS[self.format](self._source, ledger, **self._reader_options))
        ordered = sorted_by_time(rows) if options.sort else in_time_order(rows, ledger, self.name)
        requests = from_zero(ordered)
        if options.start > 0 or options.duration is not None:
            duration = math.inf if options.duration is None else options.duration
            requests = window(requests, options.start, duration)
        return islice(requests, options.limit)

    def _retimed(self) -> Iterator[Request]:
        """The same with the arrivals that were asked for."""
        options = self.options
        rate = options.request_rate
        if rate == math.inf:
            return stretched(self._recorded(), 0.0)
        if options.arrival != "as-is" or (rate is not None and not self.timed):
            return self._drawn(rate)
        if rate is not None:
            return within_bounds(stretched(self._recorded(), self._own_rate() / rate))
        if options.speedup != 1:
            return within_bounds(sped_up(self._recorded(), options.speedup))
        return self._recorded()

    def _drawn(self, rate: float | None) -> Iterator[Request]:
        from numpy.random import default_rng

        if rate is None:
            rate = self._own_rate() * self.options.speedup
        gaps = gamma_gaps(rate, self.options.burstiness, default_rng(self.options.seed))
        requests = self._recorded()
        if self.options.speedup != 1:
            requests = sped_up(requests, self.options.speedup)
        return within_bounds(redrawn(requests, gaps))

    def _own_rate(self) -> float:
        """Arrivals a second as recorded; reads the trace once."""
        own = pace(self._recorded())
        if own.arrivals == 0:
            raise self._nothing()
        if own.rate is None:
            raise ConfigError(
                f"{self.name}: all requests arrive at one instant, which no factor can bring to a "
                "rate; accepted: --request-rate with --arrival poisson or gamma"
            )
        return own.rate

    def _nothing(self) -> TraceError:
        if self._ledger.first_bad is not None:
            return TraceError(
                f"{self.name}: has no usable row, {self.skipped:,} were skipped; the first: "
                f"{self._ledger.first_bad}"
            )
        options = self.options
        if options.start > 0 or options.duration is not None:
            return TraceError(
                f"{self.name}: no request arrives in the part that --start and --duration choose; "
                "accepted: a part with at least one request (kvsim trace info shows the duration)"
            )
        return TraceError(f"{self.name}: has no requests; accepted: at least one")


def _reader_options(format_name: str, options: TraceOptions) -> dict[str, float]:
    """Those options that belong to the reader; an error for one that this format does not have."""
    given = {"hash_block": options.hash_block, "think_time_cap": options.think_time_cap}
    chosen = {name: value for name, value in given.items() if value is not None}
    known = inspect.signature(READERS[format_name]).parameters
    for name in chosen:
        if name not in known:
            flag = name.replace("_", "-")
            having = [f for f in READERS if name in inspect.signature(READERS[f]).parameters]
            raise ConfigError(
                f"--{flag} does not apply to the format {format_name}; accepted with: "
                f"{', '.join(having)}"
            )
    return chosen


def open_trace(path: str | Path, options: TraceOptions | None = None) -> Trace:
    """The trace at ``path`` (``-``: standard input; a folder of agentic sessions).

    Raises ``TraceError`` when there is none or its format is not recognised; rows are checked when
    they are read.
    """
    options = options or TraceOptions()
    source = open_source(path)
    format_name = options.format or recognised(source)
    if isinstance(source, Folder) and format_name != "agentic":
        raise TraceError(
            f"{source.name}: is a directory; accepted: a trace file, or a directory of "
            "agentic-coding files"
        )
    return Trace(source, format_name, options)


def recognised(source: Source) -> str:
    """The name of the format that a trace shows the most marks of."""
    head = read_head(source)
    scores = _scores(head)
    if max(scores.values()) < 2 and len(head.text) >= HEAD // 8 and "\n" not in head.text:
        head = read_head(source, LONG_HEAD)
        scores = _scores(head)
    best = max(scores, key=scores.__getitem__)
    if scores[best] < 2:
        raise TraceError(
            f"{source.name}: format not recognised, it begins with {shown(head.text[:200])}; "
            f"accepted: {', '.join(READERS)} (--format forces one)"
        )
    return best


def _scores(head: Head) -> dict[str, int]:
    return {name: reader.score(head) for name, reader in READERS.items()}
