"""The blocks of paged memory: free ones in their order, cached ones in a tree, those that are held."""

from __future__ import annotations

from kvsim.core import NO_MATCH, Match, Sequence
from kvsim.errors import CapacityError, ConfigError
from kvsim.memory.eviction import MakePolicy
from kvsim.memory.extents import FREE_QUEUES, Content, Extent, content_of
from kvsim.memory.prefix import Path, PrefixTree
from kvsim.memory.ranked import RankedQueue


class Lease:
    """What one admitted sequence holds: blocks of the prefix tree, then blocks of its own."""

    __slots__ = ("blocks", "path", "phase", "slack")

    def __init__(self, path: Path, blocks: int) -> None:
        self.path = path
        self.blocks = blocks
        """All its blocks, until it joins the decoders."""
        self.slack = 0
        """Empty slots of the last one, until it joins the decoders."""
        self.phase: int | None = None


class BlockPool:
    """Blocks by what they hold, as in vLLM's ``v1/core/block_pool.py``; block 0 is never used.

    A hit is of full blocks from the start of a prompt. What nobody holds waits in the free queue, and
    what is cached of it can be hit until it is given up.
    """

    tree = PrefixTree

    def __init__(
        self,
        num_blocks: int,
        *,
        block_size: int,
        prefix_caching: bool,
        free_order: str,
        eviction: MakePolicy | None,
    ) -> None:
        if num_blocks < 2:
            raise CapacityError(f"a pool of {num_blocks} blocks has no block to give: 2 at least")
        if free_order not in FREE_QUEUES:
            known = ", ".join(FREE_QUEUES)
            raise ConfigError(f"allocator.free_order is {free_order!r}; accepted: {known}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self.evictions = 0
        self.saved_slots = 0
        self._held = 0
        self._ranked = (
            None
            if eviction is None
            else RankedQueue(num_blocks - 1, eviction(self.total_slots), block_size)
        )
        self._queue = self._ranked or FREE_QUEUES[free_order](num_blocks - 1)
        self._tree = self.tree(self._queue, cached=prefix_caching)
        self._forks: dict[Sequence, Content] = {}

    @property
    def total_slots(self) -> int:
        """Slots of all blocks but the null block."""
        return (self.num_blocks - 1) * self.block_size

    @property
    def held_slots(self) -> int:
        """Slots of the blocks that running sequences hold; a shared block counts once."""
        return self._held * self.block_size

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def match(self, sequence: Sequence) -> Match:
        """The longest cached prefix, in full blocks, short of the last token."""
        if not self.prefix_caching:
            return NO_MATCH
        content = self._content(sequence)
        path, blocks = self._tree.walk(content)
        if self._ranked is not None:
            path, blocks = self._ranked.fresh(path, blocks, sequence.arrival)
        limit = (sequence.num_tokens - 1) // self.block_size
        if blocks > limit:
            blocks = limit
            while path and path[-1].start >= limit:
                path.pop()
        return Match(blocks * self.block_size, (content, path))

    def _content(self, sequence: Sequence) -> Content:
        return self._forks.get(sequence) or content_of(sequence, self.block_size)

    def _idle(self, path: list[Extent], hit: int) -> int:
        """Blocks among the first ``hit`` of a path that nobody holds: a hit takes them from the queue."""
        return sum(min(extent.end, hit) - extent.start for extent in path if not extent.refs)

    def _take(self, blocks: int) -> None:
        """Give up ``blocks`` blocks of the free queue to running sequences."""
        self._held += blocks
        self.evictions += self._queue.take(blocks, self._tree.forget)

    def _cache_prompt(self, lease: Lease, tokens: int) -> None:
        """Let others hit the full blocks of the prompt's first ``tokens`` tokens."""
        if self.prefix_caching:
            path = lease.path
            self._tree.extend(path, min(tokens // self.block_size, path.content.shared))

    def _cache_all(self, lease: Lease, full: int) -> None:
        """Put all full blocks into the tree: the prompt, and what was generated behind it."""
        self._tree.extend(lease.path, min(full, lease.path.content.shared))
        self._tree.extend(lease.path, full)

    def _release_own(self, lease: Lease, start: int, end: int, *, cached: bool) -> None:
        if end > start:
            self._held -= end - start
            self._queue.release(self._run(lease, start, end, cached=cached))

    def _run(self, lease: Lease, start: int, end: int, *, cached: bool) -> Extent:
        """Blocks of its own that a sequence gives back."""
        return Extent(start, end, cached=cached)
