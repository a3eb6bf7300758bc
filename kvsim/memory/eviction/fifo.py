"""First in, first out."""

from __future__ import annotations

from kvsim.memory.eviction.entry import Entry
from kvsim.memory.eviction.scanning import Blocks


class FIFO:
    """The entry that was cached first leaves first, however it was used.

    Source: Belady, A study of replacement algorithms for a virtual-storage computer (IBM Systems
    Journal 1966).
    """

    def priority(self, entry: Entry) -> int:
        """Rank by the time of insertion."""
        return entry.inserted

    def scan(self, trace: Blocks, capacity: int) -> bytearray:
        """Hits of blocks that are accessed one by one: what the queue gives, faster."""
        hits, cached = bytearray(len(trace.accesses)), bytearray(trace.distinct)
        order: list[int] = []
        oldest, free = 0, capacity
        for at, block in enumerate(trace.accesses):
            if cached[block]:
                hits[at] = 1
                continue
            if free:
                free -= 1
            else:
                cached[order[oldest]] = 0
                oldest += 1
            cached[block] = 1
            order.append(block)
        return hits
