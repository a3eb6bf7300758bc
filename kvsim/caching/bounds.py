"""What no cache can exceed, whatever its policy: bounds, computed with knowledge of the future."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from kvsim.analysis.accesses import Accesses, previous
from kvsim.analysis.reuse import uniform

if TYPE_CHECKING:
    from kvsim.tables import Ints


class Optimum:
    """The most hits that a cache of a given capacity could give, under the prefix rule.

    A hit needs its block to be kept from the request that used it last to this one; between any two
    requests at most ``capacity`` blocks are kept. Whenever there are too many, the one whose next use
    is farthest is not kept, which is optimal for intervals of equal weight (Belady 1966; Carlisle
    and Lloyd 1995). The next use of a block is never later than that of one behind it, so what is
    kept is closed under prefixes and every hit is usable. Room that requests need while they run is
    not counted: the bound holds for engines too, but they may not reach it.
    """

    def __init__(self, accesses: Accesses) -> None:
        rows = uniform(accesses)
        before = previous(rows.run)
        again = np.flatnonzero(before >= 0)
        request = rows.request
        self._requests = rows.requests
        self._starting = _grouped(
            self._requests, request[before[again]], request[again], rows.blocks[again]
        )
        self._block_size = rows.block_size
        self._most_tokens = int(rows.tokens[again].sum())

    def blocks(self, capacity: float) -> int:
        """Hits in blocks."""
        due = [0] * self._requests
        farthest: list[int] = []
        kept = hits = 0
        for request, starting in enumerate(self._starting):
            hits += due[request]
            kept -= due[request]
            for end, blocks in starting:
                if not due[end]:
                    heappush(farthest, -end)
                due[end] += blocks
                kept += blocks
            while kept > capacity:
                end = -farthest[0]
                dropped = int(min(kept - capacity, due[end]))
                due[end] -= dropped
                kept -= dropped
                if not due[end]:
                    heappop(farthest)
        return hits

    def most(self, capacity: float) -> tuple[int, int]:
        """Hits in blocks, and in tokens: those of the blocks, which at best are all full."""
        blocks = self.blocks(capacity)
        return blocks, min(self._most_tokens, blocks * self._block_size)


def _grouped(requests: int, start: Ints, end: Ints, blocks: Ints) -> list[list[tuple[int, int]]]:
    """For each request the next requests that use what it used, and how many blocks of it."""
    pairs, group = np.unique(start * requests + end, return_inverse=True)
    weight = np.bincount(group, weights=blocks, minlength=len(pairs)).astype(np.int64)
    starting: list[list[tuple[int, int]]] = [[] for _ in range(requests)]
    for pair, amount in zip(pairs.tolist(), weight.tolist(), strict=True):
        starting[pair // requests].append((pair % requests, amount))
    return starting
