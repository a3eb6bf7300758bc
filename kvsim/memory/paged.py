"""Paged allocation with a prefix cache, as vLLM does it."""

from __future__ import annotations

from collections.abc import Iterator

from kvsim.core import NO_MATCH, Match, Sequence, Usage
from kvsim.errors import CapacityError, ConfigError
from kvsim.memory.extents import FREE_QUEUES, Content, Extent
from kvsim.memory.phases import DecodePhases
from kvsim.memory.prefix import PrefixTree


class Lease:
    """What one admitted sequence holds: a path of cached extents, then blocks of its own."""

    __slots__ = ("blocks", "content", "copies", "leaf", "phase", "registered", "slack")

    def __init__(self, leaf: Extent, content: Content, registered: int) -> None:
        self.leaf = leaf
        """Last extent of the path; its ancestors are held too."""
        self.content = content
        self.registered = registered
        """Blocks on the path; those after it are not in the tree."""
        self.copies: dict[int, Extent] | None = None
        """Second copies that it holds in place of the path's own block, by block."""
        self.blocks = 0
        """Blocks in all, until it joins the decoders."""
        self.slack = 0
        self.phase: int | None = None


class Paged:
    """Fixed-size blocks on demand, shared by reference count, cached by content after use.

    The rules are vLLM's: only full blocks are cached; a hit is contiguous, in full blocks, and never
    the whole prompt; blocks enter the cache when the step that fills them is scheduled; equal blocks
    are not merged; cached blocks nobody holds stay in the free queue until they are given up; one
    block is never used (the null block). Source: vLLM 0.23.0 ``v1/core/kv_cache_manager.py``,
    ``block_pool.py``; PagedAttention (SOSP 2023) section 4.

    ``num_blocks`` blocks of ``block_size`` tokens; ``fixed_blocks`` more for each sequence, whatever
    its length (attention windows, recurrent state).
    """

    def __init__(
        self,
        num_blocks: int,
        *,
        block_size: int = 16,
        prefix_caching: bool = True,
        free_order: str = "vllm-0.23",
        fixed_blocks: int = 0,
    ) -> None:
        if num_blocks < 2:
            raise CapacityError(f"a pool of {num_blocks} blocks has no block to give: 2 at least")
        if free_order not in FREE_QUEUES:
            known = ", ".join(FREE_QUEUES)
            raise ConfigError(f"allocator.free_order is {free_order!r}; accepted: {known}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self.fixed_blocks = fixed_blocks
        self.evictions = 0
        self._held = 0
        self._prefill_slack = 0
        self._queue = FREE_QUEUES[free_order](num_blocks - 1)
        self._tree = PrefixTree(self._queue, cached=prefix_caching)
        self._phases = DecodePhases(block_size)
        self._leases: dict[Sequence, Lease] = {}
        self._forks: dict[Sequence, Content] = {}

    @property
    def total_slots(self) -> int:
        """Slots of all blocks but the null block."""
        return (self.num_blocks - 1) * self.block_size

    @property
    def held_slots(self) -> int:
        """Slots of the blocks that running sequences hold; a shared block counts once."""
        return self._held * self.block_size

    def fits(self, tokens: int) -> bool:
        """Whether a sequence of ``tokens`` tokens fits when it is alone in the pool."""
        return self._blocks(tokens) + self.fixed_blocks < self.num_blocks

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def match(self, sequence: Sequence) -> Match:
        """The longest cached prefix, in full blocks, short of the last token."""
        if not self.prefix_caching:
            return NO_MATCH
        content = self._content(sequence)
        path, blocks = self._tree.walk(content)
        limit = (sequence.num_tokens - 1) // self.block_size
        if blocks > limit:
            blocks = limit
            while path and path[-1].start >= limit:
                path.pop()
        return Match(blocks * self.block_size, (content, path))

    def _content(self, sequence: Sequence) -> Content:
        if sequence in self._forks:
            return self._forks[sequence]
        request = sequence.request
        ids = request.hash_ids or []
        described = min(request.prompt_tokens, len(ids) * request.hash_block)
        return Content(
            ids, request.hash_block, described // self.block_size, self.block_size, sequence
        )

    def admit(self, sequence: Sequence, match: Match, tokens: int, *, spare: int = 0) -> bool:
        """Take the hit and room for ``tokens`` tokens, if all known tokens would fit."""
        hit = match.tokens // self.block_size
        content, path = match.handle or (self._content(sequence), [])
        idle = sum(min(extent.end, hit) - extent.start for extent in path if not extent.refs)
        whole = self._blocks(sequence.num_tokens) + self.fixed_blocks
        if whole - hit + idle + self._blocks(spare) > self._queue.blocks:
            return False
        lease = Lease(self._acquire(path, hit), content, hit)
        lease.blocks = self._blocks(tokens)
        self._held += idle
        self._take(lease.blocks - hit + self.fixed_blocks)
        self._set_slack(lease, tokens)
        self._cache_prompt(lease, tokens)
        self._leases[sequence] = sequence.kv = lease
        return True

    def _acquire(self, path: list[Extent], hit: int) -> Extent:
        """Hold the first ``hit`` blocks of a path; returns its last extent."""
        if not path:
            return self._tree.root
        if path[-1].end > hit:
            path[-1] = self._tree.split(path[-1], hit)
        for extent in path:
            if not extent.refs:
                self._queue.remove(extent)
            extent.refs += 1
        return path[-1]

    def _take(self, blocks: int) -> None:
        """Give up ``blocks`` blocks of the free queue to running sequences."""
        self._held += blocks
        queue = self._queue
        while blocks:
            extent = queue.first
            size = extent.end - extent.start
            taken = min(size, blocks)
            blocks -= taken
            if extent.cached:
                self.evictions += taken
            if taken < size:
                queue.trim(extent, taken)
            else:
                queue.remove(extent)
                self._tree.forget(extent)

    def _set_slack(self, lease: Lease, tokens: int) -> None:
        self._prefill_slack -= lease.slack
        lease.slack = lease.blocks * self.block_size - tokens
        self._prefill_slack += lease.slack

    def _cache_prompt(self, lease: Lease, tokens: int) -> None:
        """Let others hit the full blocks of the prompt's first ``tokens`` tokens."""
        if self.prefix_caching:
            self._register(lease, min(tokens // self.block_size, lease.content.shared))

    def _register(self, lease: Lease, upto: int) -> None:
        """Put the lease's blocks up to ``upto`` into the tree."""
        while lease.registered < upto:
            leaf, at, content = lease.leaf, lease.registered, lease.content
            alone = leaf.refs == 1 and not leaf.children and leaf is not self._tree.root
            if alone and at != content.shared and not lease.copies and not leaf.copies:
                leaf.end = upto
                leaf.content = content
                lease.registered = upto
            else:
                self._branch(lease, upto)

    def _register_all(self, lease: Lease, full: int) -> None:
        """Put what the sequence generated into the tree too, behind its prompt."""
        self._register(lease, min(full, lease.content.shared))
        self._register(lease, full)

    def _branch(self, lease: Lease, upto: int) -> None:
        """Add an extent under the lease's leaf, or one more copy of a block that is there."""
        leaf, at, content = lease.leaf, lease.registered, lease.content
        while leaf.heir is not None:
            leaf = leaf.heir
        known = leaf.children.get(content.key(at))
        if known is None:
            lease.leaf = self._tree.add(leaf, content, at, upto)
            lease.registered = upto
            return
        if known.end > at + 1:
            known = self._tree.split(known, at + 1)
        copy = Extent(at, at + 1, cached=True, refs=1)
        copy.content = content
        copy.original = known
        known.copies = [*(known.copies or ()), copy]
        lease.copies = {**(lease.copies or {}), at: copy}
        lease.leaf = known
        lease.registered = at + 1

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Make room for ``tokens`` tokens in all: a longer prompt, or a decoder's next token."""
        lease: Lease = sequence.kv
        if lease.phase is not None:
            need = int(lease.phase == self._phases.step)
        else:
            need = self._blocks(tokens) - lease.blocks
        if need > self._queue.blocks:
            return False
        self._take(need)
        if lease.phase is None:
            lease.blocks += need
            self._set_slack(lease, tokens)
            self._cache_prompt(lease, tokens)
        return True

    def fork(self, parent: Sequence, child: Sequence, tokens: int) -> bool:
        """Let ``child`` go on from the parent's ``tokens`` computed tokens; False without room.

        Full blocks are shared. The last block, if it is partly filled, is copied at once: both
        write to it in their next step, which is when copy-on-write would copy it.
        """
        lease: Lease = parent.kv
        full, blocks = tokens // self.block_size, self._blocks(tokens)
        if blocks - full + self.fixed_blocks > self._queue.blocks:
            return False
        self._register_all(lease, full)
        content = self._forks[child] = lease.content.fork(child, full)
        twin = Lease(lease.leaf, content, full)
        twin.copies = lease.copies
        for extent in self._path(lease):
            extent.refs += 1
        self._take(blocks - full + self.fixed_blocks)
        twin.blocks = blocks
        self._set_slack(twin, tokens)
        self._leases[child] = child.kv = twin
        return True

    def join(self, sequence: Sequence) -> None:
        """From now on the sequence gains one token a step."""
        lease: Lease = sequence.kv
        lease.phase = self._phases.join(lease.slack)
        self._prefill_slack -= lease.slack
        lease.slack = 0

    def leave(self, sequence: Sequence, tokens: int) -> None:
        """The sequence stops gaining tokens and keeps its blocks."""
        lease: Lease = sequence.kv
        assert lease.phase is not None
        self._phases.leave(lease.phase)
        lease.phase = None
        lease.blocks = self._blocks(tokens)
        self._set_slack(lease, tokens)

    def room(self, steps: int, sequence: Sequence | None = None, chunk: int = 0) -> int:
        """Steps for which every decoder (and the chunk) can grow without preempting anyone."""
        free = self._queue.blocks
        if sequence is None:
            return self._phases.max_steps(steps, free)
        lease: Lease = sequence.kv
        start, held = sequence.num_computed, lease.blocks

        def needed(count: int) -> int:
            return self._phases.needed(count) + self._blocks(start + count * chunk) - held

        if needed(steps) <= free:
            return steps
        low, high = 0, steps
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if needed(middle) <= free else (low, middle)
        return low

    def advance(self, steps: int, *, grown: bool = False) -> None:
        """All decoders gain ``steps`` tokens, and the blocks for them."""
        blocks = self._phases.advance(steps)
        if blocks and not grown:
            self._take(blocks)

    def free(self, sequence: Sequence, tokens: int, *, finished: bool) -> None:
        """Give all blocks back, the last first; full ones stay cached.

        What a finished sequence generated is cached as well, but no prompt of a trace names it.
        """
        lease: Lease = sequence.kv
        full = tokens // self.block_size if self.prefix_caching else 0
        if finished:
            self._forks.pop(sequence, None)
        else:
            self._register_all(lease, full)
        blocks = self._blocks(tokens) + self.fixed_blocks
        self._release_own(max(full, lease.registered), blocks, cached=False)
        self._release_own(lease.registered, full, cached=True)
        self._release_path(lease)
        if lease.phase is not None:
            self._phases.leave(lease.phase)
        self._prefill_slack -= lease.slack
        sequence.kv = None
        del self._leases[sequence]

    def _release_own(self, start: int, end: int, *, cached: bool) -> None:
        if end > start:
            self._held -= end - start
            self._queue.release(Extent(start, end, cached=cached))

    def _release_path(self, lease: Lease) -> None:
        for extent in self._path(lease):
            extent.refs -= 1
            if not extent.refs:
                self._held -= extent.end - extent.start
                self._queue.release(extent)

    def _path(self, lease: Lease) -> Iterator[Extent]:
        """The extents that a lease holds, the last first."""
        extent, root, copies = lease.leaf, self._tree.root, lease.copies
        while extent is not root:
            yield copies.get(extent.start, extent) if copies else extent
            assert extent.parent is not None
            extent = extent.parent

    def usage(self) -> Usage:
        """A last block's empty slots count as internal fragmentation until they are filled."""
        size, queue = self.block_size, self._queue
        internal = self._phases.slack + self._prefill_slack
        return Usage(
            used=self._held * size - internal,
            internal=internal,
            reserved=0,
            external=0,
            cached=queue.cached * size,
            free=(queue.blocks - queue.cached) * size,
        )

    def check(self) -> None:
        """Blocks are conserved; every reference has a holder; no child outlives its parent."""
        assert self._held + self._queue.blocks == self.num_blocks - 1
        holders: dict[Extent, int] = {}
        for lease in self._leases.values():
            for extent in self._path(lease):
                holders[extent] = holders.get(extent, 0) + 1
        queued = set(self._queue)
        for extent in self._tree.extents():
            assert extent.refs == holders.pop(extent, 0)
            assert (extent in queued) == (not extent.refs)
            parent = extent.parent or (extent.original and extent.original.parent)
            assert parent is not None
            assert parent.end == extent.start < extent.end
        assert not holders
        cached = sum(extent.end - extent.start for extent in queued if extent.cached)
        assert cached == self._queue.cached <= self._queue.blocks
