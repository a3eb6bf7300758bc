"""First in, first out."""

from __future__ import annotations

from kvsim.memory.eviction.entry import Entry
from kvsim.memory.eviction.scanning import Runs


class FIFO:
    """The entry that was cached first leaves first, however it was used.

    Source: Belady, A study of replacement algorithms for a virtual-storage computer (IBM Systems
    Journal 1966).
    """

    def priority(self, entry: Entry) -> int:
        """Rank by the time of insertion."""
        return entry.inserted

    def scan_runs(self, trace: Runs, capacity: int) -> bytearray:
        """Hits of runs whose blocks are accessed one by one: what the queue gives, faster.

        Cached are the ``capacity`` blocks that were inserted last. A run that has lost its first
        block loses the next one to each that is inserted again, so it hits whole or not at all.
        """
        hits, place = bytearray(len(trace.accesses)), [-capacity - 1] * trace.distinct
        inserted = 0
        for at, (run, size) in enumerate(zip(trace.accesses, trace.sizes, strict=True)):
            if place[run] >= inserted - capacity:
                hits[at] = 1
            else:
                place[run] = inserted
                inserted += size
        return hits
