"""What a user may choose about the reading of a trace."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from kvsim.errors import ConfigError, shown, unknown
from kvsim.workload.fields import MAX_TOKENS
from kvsim.workload.isolation import Isolation
from kvsim.workload.ledger import Ledger, OnBadRow
from kvsim.workload.readers import READERS
from kvsim.workload.timeline import SHAPES

Arrival = Literal["as-is", "poisson", "gamma"]
FASTEST = 1e9
"""Bound of a rate (a second) or of a speedup, and with its inverse of what slows down."""


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How a trace is read. Raises ``ConfigError`` for a value that cannot be meant."""

    format: str | None = None
    """A name of ``READERS``; None: recognised by content."""
    on_bad_row: OnBadRow = "error"
    limit: int | None = None
    """Requests that are read at most."""
    start: float = 0.0
    """Seconds of the trace's own time at which reading begins; they become time 0."""
    duration: float | None = None
    """Seconds of the trace's own time that are read."""
    speedup: float = 1.0
    """Divides arrivals and think times."""
    request_rate: float | None = None
    """Mean arrivals a second (of sessions, where turns wait for one another); inf: all at once."""
    arrival: Arrival = "as-is"
    """Whether arrivals are the trace's own (stretched to the rate, if one is given) or drawn."""
    burstiness: float = 1.0
    """Shape of gamma arrivals; 1 is Poisson, less is burstier."""
    seed: int = 0
    hash_block: int | None = None
    """Tokens that a hash id stands for, where the file does not say; None: the format's own."""
    think_time_cap: float | None = None
    """Longest pause between turns that is kept, seconds; None: the format's own."""
    sort: bool = False
    """Sort the whole trace in memory first, for files in no order of time."""
    isolation: Isolation = "global"
    """Among whose prompts equal beginnings count as equal."""

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in READERS:
            raise unknown("trace format", self.format, READERS)
        if self.arrival not in get_args(Arrival):
            raise ConfigError(
                f"--arrival is {shown(self.arrival)}; accepted: as-is, poisson, gamma"
            )
        if self.isolation not in get_args(Isolation):
            raise unknown("isolation", self.isolation, get_args(Isolation))
        Ledger(self.on_bad_row)
        self._check_whole()
        self._check_positive()
        self._check_arrival()

    def _check_whole(self) -> None:
        for name, value, least, most in (
            ("limit", self.limit, 1, 10**12),
            ("hash-block", self.hash_block, 1, MAX_TOKENS),
            ("seed", self.seed, 0, 2**63 - 1),
        ):
            if value is not None and (type(value) is not int or not least <= value <= most):
                raise refused(name, value, f"a whole number from {least} to {most:,}")

    def _check_positive(self) -> None:
        for name, value in (("start", self.start), ("think-time-cap", self.think_time_cap)):
            if value is not None and not 0 <= value < math.inf:
                raise refused(name, value, "a number of seconds, 0 or more")
        if self.duration is not None and not 0 < self.duration < math.inf:
            raise refused("duration", self.duration, "a number of seconds above 0")
        if not 1 / FASTEST <= self.speedup <= FASTEST:
            raise refused("speedup", self.speedup, f"a factor from {1 / FASTEST:g} to {FASTEST:g}")
        rate = self.request_rate
        if rate is not None and rate != math.inf and not 1 / FASTEST <= rate <= FASTEST:
            accepted = f"requests per second from {1 / FASTEST:g} to {FASTEST:g}, or inf"
            raise refused("request-rate", rate, accepted)
        least, most = SHAPES
        if not least <= self.burstiness <= most:
            raise refused(
                "burstiness", self.burstiness, f"a number from {least:g} to {most:g} (1 is Poisson)"
            )

    def _check_arrival(self) -> None:
        if self.burstiness != 1 and self.arrival != "gamma":
            raise ConfigError(
                f"--burstiness {self.burstiness:g} with --arrival {self.arrival}; accepted: it shapes "
                "drawn arrivals, so add --arrival gamma"
            )
        if self.speedup != 1 and self.request_rate is not None:
            raise ConfigError(
                "--speedup and --request-rate both set the rate; accepted: one of them"
            )


def refused(option: str, value: object, accepted: str) -> ConfigError:
    return ConfigError(f"--{option} is {shown(value)}; accepted: {accepted}")
