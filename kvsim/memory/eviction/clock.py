"""CLOCK: first in, first out with second chances."""

from __future__ import annotations

from kvsim.memory.eviction.entry import Entry
from kvsim.memory.eviction.queues import Queued, Ranks
from kvsim.memory.eviction.scanning import Blocks


class Clock(Queued):
    """A hand goes round the entries in order of insertion; one that was used since is passed over once.

    Source: Corbato, A paging experiment with the Multics system (1968).
    """

    def __init__(self) -> None:
        self._ring = Ranks()
        self._newest = 0

    def insert(self, entry: Entry) -> None:
        """It comes right behind the hand."""
        entry.queue = self._ring
        entry.count = 0
        self._stamp(entry)

    def _stamp(self, entry: Entry) -> None:
        self._newest += 1
        entry.rank = self._newest

    def hit(self, entry: Entry) -> None:
        """It has a second chance."""
        entry.count = 1

    def victim(self) -> Entry | None:
        """The first that was not used since the hand came by."""
        while (entry := self._ring.pop()) is not None and entry.count:
            entry.count = 0
            self._stamp(entry)
            self.offer(entry)
        return entry

    def scan(self, trace: Blocks, capacity: int) -> bytearray:
        """Hits of blocks that are accessed one by one: what the queue gives, faster."""
        hits, state = (
            bytearray(len(trace.accesses)),
            bytearray(trace.distinct),
        )  # 1: cached, 2: and used since
        order: list[int] = []
        hand, free = 0, capacity
        for at, block in enumerate(trace.accesses):
            if state[block]:
                hits[at] = 1
                state[block] = 2
                continue
            if free:
                free -= 1
            else:
                while state[order[hand]] == 2:
                    state[order[hand]] = 1
                    order.append(order[hand])
                    hand += 1
                state[order[hand]] = 0
                hand += 1
            state[block] = 1
            order.append(block)
        return hits
