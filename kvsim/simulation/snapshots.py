"""An observer that looks at a pool now and then, to show later where everything lay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from kvsim.core import PICOSECONDS, Leap, Sequence
from kvsim.protocols import Allocator
from kvsim.simulation.silent import Silent

T = TypeVar("T")
MOST_SNAPSHOTS = 200


class Snapshot(NamedTuple, Generic[T]):
    """What was seen of a replica at the end of a leap."""

    time: float
    """Seconds."""
    running: int
    waiting: int
    seen: T


class Ended(NamedTuple):
    """A request that has its last token."""

    time: float
    row: int
    cached_tokens: int


class Snapshots(Silent, Generic[T]):
    """Keeps what ``look`` makes of a replica's memory, at most :data:`MOST_SNAPSHOTS` times.

    When there are so many, every other one is dropped and the next ones come half as often.
    """

    def __init__(self, look: Callable[[Allocator], T], *, replica: int = 0) -> None:
        self._look = look
        self._replica = replica
        self._interval = self._due = 0
        self.taken: list[Snapshot[T]] = []
        self.ended: list[Ended] = []

    def leap(self, leap: Leap, allocator: Allocator) -> None:
        """Look, if it is time to."""
        if leap.replica != self._replica or leap.end < self._due:
            return
        time = leap.end / PICOSECONDS
        seen = self._look(allocator)
        self.taken.append(Snapshot(time, leap.running, leap.waiting, seen))
        self._due = leap.end + self._interval
        if len(self.taken) > MOST_SNAPSHOTS:
            del self.taken[::2]
            self._interval = max(2 * self._interval, 2 * leap.end // MOST_SNAPSHOTS)

    def finished(self, sequence: Sequence, replica: int) -> None:
        """Note when, and what it had found in the cache."""
        assert sequence.finished is not None
        time = sequence.finished / PICOSECONDS
        self.ended.append(Ended(time, sequence.request.row, sequence.cached_tokens))
