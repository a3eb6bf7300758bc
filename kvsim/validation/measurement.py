"""What was measured on a real engine, whatever recorded it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kvsim.core import Request
from kvsim.validation.engine import Setup
from kvsim.validation.observed import Outcome
from kvsim.validation.rows import Row

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[Any, np.dtype[np.float64]]


class Tick(NamedTuple):
    """The state of an engine at a time, seconds; KV usage is None where it was not recorded."""

    time: float
    running: int
    waiting: int
    kv_usage: float | None


class Measurement(NamedTuple):
    """A run: its engine, what was submitted, and what came of it."""

    name: str
    setup: Setup
    requests: list[Request]
    """At the times of their calls, in order."""
    outcomes: dict[int, Outcome]
    """By row, of the requests that ended before the run was stopped."""
    gaps: Floats | None
    """Seconds between tokens of the same requests, if every token's time was recorded."""
    rows: list[Row]
    """Iterations that did something, if they were recorded."""
    ticks: list[Tick]
    """The state over time."""
    preemptions: int | None

    @property
    def end(self) -> float:
        """When the last request with a record ended, seconds."""
        return max(outcome.submit + outcome.e2e for outcome in self.outcomes.values())
