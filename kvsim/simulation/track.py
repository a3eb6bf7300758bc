"""What the recorder keeps of each replica: a few sums, and a bounded number of samples."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from kvsim.core import PICOSECONDS, Usage
from kvsim.tables import ReplicaTotals

if TYPE_CHECKING:
    from kvsim.tables import Floats

_SAMPLE_NUMBERS = 13


class Instant(NamedTuple):
    """What a sample holds apart from its time and the memory."""

    waiting: int = 0
    running: int = 0
    batch: int = 0
    batch_tokens: int = 0


class Track:
    """Sums and samples of one replica; times in picoseconds.

    At ``most_samples`` samples every other one is dropped, and they are taken half as often.
    """

    __slots__ = (
        "_most_numbers",
        "blocked_budget",
        "blocked_kv",
        "blocked_seats",
        "busy",
        "due",
        "end",
        "evictions",
        "first",
        "held",
        "idle",
        "interval",
        "iterations",
        "peak",
        "preemptions",
        "samples",
        "saved",
        "tokens",
    )

    def __init__(self, total_slots: int, most_samples: int) -> None:
        self.iterations = self.tokens = self.busy = self.held = self.peak = self.saved = 0
        self.blocked_kv = self.blocked_seats = self.blocked_budget = 0
        self.preemptions = self.evictions = 0
        self.end = 0
        """When its latest iteration ended."""
        self.idle = Usage(0, 0, 0, 0, 0, total_slots)
        """The pool while nothing runs."""
        self.samples = array("d")
        self._most_numbers = most_samples * _SAMPLE_NUMBERS
        self.first = self.due = self.interval = 0

    def wake(self, now: int) -> None:
        """The replica has had nothing to do and begins now."""
        if not self.samples:
            self.first = now
        if now >= self.due:
            self.sample(now, Instant(), self.idle)

    def sample(self, now: int, instant: Instant, usage: Usage) -> None:
        """Keep how things are now; the next sample is due an interval later."""
        self.samples.extend((now, *instant, *usage, self.preemptions, self.evictions))
        self.due = now + self.interval
        if len(self.samples) >= self._most_numbers:
            self._thin(now)

    def _thin(self, now: int) -> None:
        """Drop every other sample and take them half as often from now on."""
        rows = self.rows()
        self.samples = array("d", rows[1::2].tobytes())
        self.interval = max(2 * self.interval, 2 * (now - self.first) // len(rows))
        self.due = now + self.interval

    def rows(self) -> Floats:
        """The samples, a row each: time, :class:`Instant`, usage, preemptions and evictions."""
        return matrix(self.samples, _SAMPLE_NUMBERS)

    def totals(self) -> ReplicaTotals:
        """The sums, in seconds."""
        return ReplicaTotals(
            self.iterations,
            self.tokens,
            self.busy / PICOSECONDS,
            self.held / PICOSECONDS,
            self.peak,
            self.blocked_kv / PICOSECONDS,
            self.blocked_seats / PICOSECONDS,
            self.blocked_budget / PICOSECONDS,
            self.saved / PICOSECONDS,
        )


def matrix(numbers: array[float], columns: int) -> Floats:
    """A view of a flat row-major array as a matrix.

    Its floats are whole up to 2^53, and an instant, which in picoseconds would outgrow an integer of
    64 bits after 106 days, is rounded as it would be for the tables anyway.
    """
    import numpy as np

    return np.frombuffer(numbers, dtype=np.float64).reshape(-1, columns)
