"""A cache of single blocks under any policy: what block caches do that know of no prefixes.

Blocks are accessed one after the other, from the start of each prompt, and a miss is inserted. A
block may outlive the one before it; then it hits and is of no use, which is counted apart.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from math import isnan

import numpy as np

from kvsim.analysis.accesses import Accesses, previous, single_blocks
from kvsim.analysis.reuse import uniform
from kvsim.caching.curve import Hits
from kvsim.core import PICOSECONDS, picoseconds
from kvsim.memory.eviction import (
    Entry,
    EvictionQueue,
    Expiring,
    MakePolicy,
    Use,
    queue_of,
)
from kvsim.memory.eviction.scanning import Blocks, Runs, RunScanning, Scanning


class BlockTrace:
    """The accesses of a trace block by block, as several replays use them."""

    def __init__(self, accesses: Accesses) -> None:
        self.accesses = accesses

    @cached_property
    def rows(self) -> Accesses:
        """A row for each block."""
        return single_blocks(self.accesses)

    @cached_property
    def blocks(self) -> Blocks:
        """The blocks, one after the other."""
        run = self.rows.run
        depth = np.zeros(int(run.max(initial=-1)) + 1, dtype=np.int64)
        depth[run] = self.rows.position
        return Blocks(run.tolist(), depth.tolist())

    @cached_property
    def whole(self) -> Accesses:
        """A row for each run of blocks that are always accessed together."""
        return uniform(self.accesses)

    @cached_property
    def runs(self) -> Runs:
        """The runs, one after the other."""
        run = self.whole.run
        return Runs(run.tolist(), self.whole.blocks.tolist(), int(run.max(initial=-1)) + 1)

    @cached_property
    def _seen(self) -> bytearray:
        """For each run of ``whole`` 1 if it was accessed before, else 0."""
        return bytearray(previous(self.whole.run) >= 0)

    def hits(self, make: MakePolicy, capacity: int) -> Hits:
        """What a cache of ``capacity`` blocks gives."""
        policy = make(capacity * self.accesses.block_size)
        if capacity < 1:
            return Hits(0, 0, 0)
        if capacity >= self.blocks.distinct and not isinstance(policy, Expiring):
            return counted(self.whole, self._seen)  # nothing ever leaves
        if isinstance(policy, RunScanning):
            return counted(self.whole, policy.scan_runs(self.runs, capacity))
        if isinstance(policy, Scanning):
            return counted(self.rows, policy.scan(self.blocks, capacity))
        return counted(self.rows, self._replay(queue_of(policy), capacity))

    def _replay(self, queue: EvictionQueue, capacity: int) -> bytearray:
        rows = self.rows
        cache = _Cache(queue, self.blocks.distinct, capacity, rows.block_size)
        first, arrival, prompts = (
            column.tolist() for column in (rows.first, rows.arrival, rows.prompt_tokens)
        )
        blocks = self.blocks.accesses
        hits = bytearray(len(blocks))
        now = 0
        for number, (start, end) in enumerate(pairwise(first)):
            now = clock(now, arrival[number])
            cache.begin(now)
            for at in range(start, end):
                use = Use(at, now, prompts[number])
                hits[at] = cache.access(blocks[at], at - start, use)
        return hits


def clock(now: int, arrival: float) -> int:
    """The time at a request's arrival, picoseconds: never before ``now``.

    A request whose arrival the trace does not say (NaN) comes a second after the one before it.
    """
    return now + PICOSECONDS if isnan(arrival) else max(now, picoseconds(arrival))


def counted(rows: Accesses, found: bytearray) -> Hits:
    """The hits, and those among them with no miss before them in their request."""
    hit, first = np.frombuffer(found, dtype=np.bool_), rows.first
    misses = np.concatenate(([0], np.cumsum(~hit)))
    usable = misses[1:] == np.repeat(misses[first[:-1]], np.diff(first))
    return Hits(
        int(rows.blocks[hit].sum()),
        int(rows.blocks[usable].sum()),
        int(rows.tokens[usable].sum()),
    )


class _Cache:
    """Blocks by number, and the queue in which they leave."""

    def __init__(self, queue: EvictionQueue, distinct: int, capacity: int, size: int) -> None:
        self._queue = queue
        self._ages = queue if isinstance(queue, Expiring) else None
        self._entries: list[Entry | None] = [None] * distinct
        self._free = capacity
        self._size = size

    def begin(self, now: int) -> None:
        """A request comes; what is too old by then goes."""
        ages = self._ages
        while ages is not None and (entry := ages.expired(now)) is not None:
            self._drop(entry)

    def _drop(self, entry: Entry) -> None:
        assert isinstance(entry.key, int)
        self._entries[entry.key] = None
        self._free += 1

    def access(self, block: int, position: int, use: Use) -> bool:
        """Whether the block is there; afterwards it is."""
        entry = self._entries[block]
        if entry is not None:
            entry.touch(use)
            self._queue.hit(entry)
            return True
        if not self._free:
            victim = self._queue.victim()
            assert victim is not None
            self._drop(victim)
        start = position * self._size
        self._entries[block] = entry = Entry(start, start + self._size, block, use)
        self._free -= 1
        self._queue.insert(entry)
        self._queue.offer(entry)
        return False
