"""SIEVE: CLOCK whose survivors stay where they are."""

from __future__ import annotations

from kvsim.memory.eviction.entry import Entry
from kvsim.memory.eviction.queues import Queued, Ranks
from kvsim.memory.eviction.scanning import Blocks


class Sieve(Queued):
    """A hand goes from the oldest entry to the newest and drops what was not used since it came by.

    What it passes over keeps its place, so new entries are looked at soon after they came.
    Source: Zhang et al., SIEVE is simpler than LRU (NSDI 2024).
    """

    def __init__(self) -> None:
        self._entries = Ranks()
        self._lap = 0
        """How often the hand has begun anew; a rank is the lap in which it comes by, then the age."""

    def insert(self, entry: Entry) -> None:
        """It is the newest: the last of this lap."""
        entry.queue = self._entries
        entry.count = 0
        entry.rank = (self._lap, entry.inserted)

    def hit(self, entry: Entry) -> None:
        """The hand will pass over it once."""
        entry.count = 1

    def victim(self) -> Entry | None:
        """The first at the hand that was not used since it came by."""
        while (entry := self._entries.pop()) is not None:
            lap = self._lap_of(entry)
            following = self._entries.peek()
            if following is None or self._lap_of(following) > lap:
                self._lap = lap + 1
            if not entry.count:
                return entry
            entry.count = 0
            entry.rank = (lap + 1, entry.inserted)
            self.offer(entry)
        return None

    def _lap_of(self, entry: Entry) -> int:
        assert isinstance(entry.rank, tuple)
        return int(entry.rank[0])

    def scan(self, trace: Blocks, capacity: int) -> bytearray:
        """Hits of blocks that are accessed one by one: what the queue gives, faster."""
        none = trace.distinct  # stands before the oldest and after the newest
        hits, state = bytearray(len(trace.accesses)), bytearray(none + 1)  # 2: used since
        older, newer = [none] * (none + 1), [none] * (none + 1)
        hand, free = none, capacity
        for at, block in enumerate(trace.accesses):
            if state[block]:
                hits[at] = 1
                state[block] = 2
                continue
            if free:
                free -= 1
            else:
                if hand == none:
                    hand = newer[none]
                while state[hand] == 2:
                    state[hand] = 1
                    hand = newer[hand]
                    if hand == none:
                        hand = newer[none]
                state[hand] = 0
                before, after = older[hand], newer[hand]
                newer[before], older[after] = after, before
                hand = after
            state[block] = 1
            newest = older[none]
            older[block], newer[block] = newest, none
            newer[newest] = older[none] = block
        return hits
