"""Length-aware: LFU that minds where in the prompt a block lies."""

from __future__ import annotations

from collections import deque
from typing import Literal

from kvsim.errors import ConfigError
from kvsim.memory.eviction.entry import Entry
from kvsim.memory.eviction.scanning import Blocks


class LengthAware:
    """The entry with the fewest uses leaves first; of equal ones the latest in its prompt.

    Source: Mooncake (arXiv:2407.00079) section 4.2, "LengthAwareCache". ``keep`` = ``late`` is the
    opposite tie-break: a cache of single blocks then holds blocks whose prefix is gone, which hit
    and are of no use.
    """

    def __init__(self, *, keep: Literal["early", "late"] = "early") -> None:
        if keep not in ("early", "late"):
            raise ConfigError(f"eviction.keep is {keep!r}; accepted: early, late")
        self._sign = 1 if keep == "late" else -1

    def priority(self, entry: Entry) -> tuple[float, ...]:
        """Rank by uses, then by place."""
        return (entry.hits, self._sign * entry.start)

    def scan(self, trace: Blocks, capacity: int) -> bytearray:
        """Hits of blocks that are accessed one by one: what the queue gives, faster."""
        deepest = max(trace.depth, default=0)
        place = [deepest - d for d in trace.depth] if self._sign > 0 else trace.depth
        hits, uses = bytearray(len(trace.accesses)), [0] * trace.distinct
        levels = [_Level(), _Level()]
        once, queues, bits = levels[1], levels[1].queues, [1 << d for d in range(deepest + 1)]
        queues.update((d, deque()) for d in range(deepest + 1))
        free = capacity
        for at, block in enumerate(trace.accesses):
            count = uses[block]
            if count:
                hits[at] = 1
                uses[block] = count + 1
                if count + 1 == len(levels):
                    levels.append(_Level())
                levels[count + 1].add(block, place[block])
                continue
            if free:
                free -= 1
            else:
                _drop_least(levels, uses)
            uses[block] = 1
            own = place[block]
            queues[own].append(block)
            once.places |= bits[own]
        return hits


class _Level:
    """Blocks with equal uses, by place, and the places that have any as the bits of a number."""

    __slots__ = ("places", "queues")

    def __init__(self) -> None:
        self.places = 0
        self.queues: dict[int, deque[int]] = {}

    def add(self, block: int, place: int) -> None:
        """The block has reached this number of uses."""
        queue = self.queues.get(place)
        if queue is None:
            queue = self.queues[place] = deque()
        queue.append(block)
        self.places |= 1 << place


def _drop_least(levels: list[_Level], uses: list[int]) -> None:
    """Drop a block of the lowest level that has one, from its highest place.

    A block that was used again since stands in a queue still; its number tells.
    """
    for count, level in enumerate(levels):
        places, queues = level.places, level.queues
        while places:
            highest = places.bit_length() - 1
            queue = queues[highest]
            while queue:
                block = queue.popleft()
                if uses[block] == count:
                    uses[block] = 0
                    level.places = places
                    return
            places ^= 1 << highest
        level.places = 0
