"""What every scheduler keeps: who waits, who runs, and the clock by which they decode."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from kvsim.core import Sequence
from kvsim.protocols import Allocator
from kvsim.scheduling.running import Running


class Queue(Protocol):
    """Sequences that wait, by their place; 0 is looked at first."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Sequence]: ...

    def __getitem__(self, place: int, /) -> Sequence: ...

    def __delitem__(self, place: int, /) -> None: ...

    def append(self, sequence: Sequence, /) -> None:
        """It waits from now on, behind all others."""
        ...

    def appendleft(self, sequence: Sequence, /) -> None:
        """It was preempted, and waits before all others."""
        ...


class Roster:
    """Requests in the queue, and the sequences that run, in the order of their admission."""

    queue: Callable[[], Queue] = deque

    def __init__(self, allocator: Allocator) -> None:
        self.preemptions = 0
        self.gaps: list[int] = []
        self._allocator = allocator
        self._waiting = self.queue()
        self._running: dict[int, Sequence] = {}  # by order of admission
        self._clock = Running()
        self._admitted = 0

    @property
    def waiting_count(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def running_count(self) -> int:
        """Sequences that hold memory."""
        return len(self._running)

    def _start(self, sequence: Sequence, hit: int, now: int) -> None:
        """Make an admitted sequence the last of the running."""
        sequence.admit(self._next_order(), hit, now)
        self._running[sequence.order] = sequence

    def _next_order(self) -> int:
        self._admitted += 1
        return self._admitted

    def _answer(self, sequence: Sequence) -> bool:
        """A prompt is complete and yields a token; True if that was the last one."""
        sequence.generated += 1
        sequence.num_tokens += 1
        if not self._clock.join(sequence):
            return True
        self._allocator.join(sequence)
        return False

    def _see_token(self, sequence: Sequence, now: int) -> None:
        """The token that a prompt has yielded is seen."""
        gap = sequence.see_token(now)
        if gap is not None:
            self.gaps.append(gap)
