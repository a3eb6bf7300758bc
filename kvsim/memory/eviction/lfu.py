"""Least frequently used."""

from __future__ import annotations

from kvsim.memory.eviction.entry import Entry
from kvsim.memory.eviction.scanning import Blocks


class LFU:
    """The entry with the fewest uses while it was cached leaves first; of equal ones the least recent.

    Source: Aho, Denning and Ullman, Principles of optimal page replacement (JACM 1971); in SGLang
    0.5.23 ``mem_cache/evict_policy.py``.
    """

    def priority(self, entry: Entry) -> int:
        """Rank by the number of uses."""
        return entry.hits

    def scan(self, trace: Blocks, capacity: int) -> bytearray:
        """Hits of blocks that are accessed one by one: what the queue gives, faster.

        A queue for each number of uses. A block leaves its old queue when its turn comes there: by
        then its number is another.
        """
        hits, uses = bytearray(len(trace.accesses)), [0] * trace.distinct
        once: list[int] = []
        queues, heads = [[], once], [0, 0]
        free = capacity
        for at, block in enumerate(trace.accesses):
            count = uses[block]
            if count:
                hits[at] = 1
                count += 1
                if count == len(queues):
                    queues.append([])
                    heads.append(0)
                queues[count].append(block)
                uses[block] = count
                continue
            if free:
                free -= 1
            else:
                _drop_least(queues, heads, uses)
            uses[block] = 1
            once.append(block)
        return hits


def _drop_least(queues: list[list[int]], heads: list[int], uses: list[int]) -> None:
    """Drop the first block of the lowest queue that has one."""
    count = 1
    while True:
        queue, head = queues[count], heads[count]
        end = len(queue)
        while head < end:
            block = queue[head]
            head += 1
            if uses[block] == count:
                uses[block] = 0
                heads[count] = head
                return
        heads[count] = head
        count += 1
