"""Paged allocation with a prefix cache, as vLLM does it."""

from __future__ import annotations

from bisect import bisect_right

from kvsim.core import Match, Sequence, Usage
from kvsim.memory.block_pool import BlockPool, Lease
from kvsim.memory.eviction import MakePolicy
from kvsim.memory.extents import Extent
from kvsim.memory.phases import DecodePhases


class Paged(BlockPool):
    """Fixed-size blocks on demand, shared by reference count, cached by content after use.

    The rules are vLLM's: only full blocks are cached; a hit is contiguous, in full blocks, and never
    the whole prompt; blocks enter the cache when the step that fills them is scheduled, if all their
    tokens are known by then; equal blocks are not merged; cached blocks nobody holds stay in the free
    queue until they are given up; one block is never used (the null block). Source: vLLM 0.23.0
    ``v1/core/kv_cache_manager.py``, ``block_pool.py``; PagedAttention (SOSP 2023) section 4.

    ``num_blocks`` blocks of ``block_size`` tokens; ``fixed_blocks`` more for each sequence, whatever
    its length (attention windows, recurrent state). ``eviction`` makes another policy for cached
    blocks, for a cache of so many tokens; without, ``free_order`` says which release's order is kept.
    """

    def __init__(
        self,
        num_blocks: int,
        *,
        block_size: int = 16,
        prefix_caching: bool = True,
        free_order: str = "vllm-0.23",
        fixed_blocks: int = 0,
        eviction: MakePolicy | None = None,
    ) -> None:
        super().__init__(
            num_blocks,
            block_size=block_size,
            prefix_caching=prefix_caching,
            free_order=free_order,
            eviction=eviction,
        )
        self.fixed_blocks = fixed_blocks
        self._prefill_slack = 0
        self._phases = DecodePhases(block_size)
        self._leases: dict[Sequence, Lease] = {}
        self._grown: set[Lease] = set()  # decoders that have a block for the step to come

    def fits(self, tokens: int) -> bool:
        """Whether a sequence of ``tokens`` tokens fits when it is alone in the pool."""
        return self._blocks(tokens) + self.fixed_blocks < self.num_blocks

    def fits_group(self, sequence: Sequence, tokens: int) -> bool:
        """Whether ``width`` sequences fit that share the full blocks of their prompt."""
        shared = sequence.request.prompt_tokens // self.block_size
        own = self._blocks(tokens) - shared + self.fixed_blocks
        return shared + sequence.request.width * own < self.num_blocks

    def admit(self, sequence: Sequence, match: Match, tokens: int, *, spare: int = 0) -> bool:
        """Take the hit and room for ``tokens`` tokens, if all known tokens would fit."""
        hit = match.tokens // self.block_size
        content, path = match.handle or (self._content(sequence), [])
        idle = self._idle(path, hit)
        whole = self._blocks(sequence.num_tokens) + self.fixed_blocks
        if whole - hit + idle + self._blocks(spare) > self._queue.blocks:
            return False
        lease = Lease(self._tree.hold(content, path, hit), self._blocks(tokens))
        if self._ranked is not None:
            self._ranked.use(self._tree.held(lease.path), sequence)
            self._ranked.expire(self._tree.forget)
        self._held += idle
        if hit > idle:
            self.saved_slots += (hit - idle) * self.block_size
        self._take(lease.blocks - hit + self.fixed_blocks)
        self._set_slack(lease, tokens)
        self._cache_prompt(lease, tokens)
        self._leases[sequence] = sequence.kv = lease
        return True

    def _set_slack(self, lease: Lease, tokens: int) -> None:
        self._prefill_slack -= lease.slack
        lease.slack = lease.blocks * self.block_size - tokens
        self._prefill_slack += lease.slack

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
        if lease.phase is not None:
            if need:
                self._grown.add(lease)
        else:
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
        self._cache_all(lease, full)
        content = self._forks[child] = lease.path.content.fork(child, full)
        twin = Lease(self._tree.fork(lease.path, content), blocks)
        self.saved_slots += full * self.block_size
        self._take(blocks - full + self.fixed_blocks)
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
        """Steps for which every decoder (and the chunk) can grow without preempting anyone.

        Under a policy of choice chunks go one by one: what they cache may change who leaves next.
        """
        free = self._queue.blocks
        if sequence is None:
            return self._phases.max_steps(steps, free)
        if self._ranked is not None:
            steps = min(steps, 1)
        lease: Lease = sequence.kv
        start, held = sequence.num_computed, lease.blocks

        def needed(count: int) -> int:
            return self._phases.needed(count) + self._blocks(start + count * chunk) - held

        if needed(steps) <= free:
            return steps
        return bisect_right(range(1, steps), free, key=needed)

    def advance(self, steps: int, *, grown: bool = False) -> None:
        """All decoders gain ``steps`` tokens, and the blocks for them."""
        blocks = self._phases.advance(steps)
        if grown:
            self._grown.clear()
        elif blocks:
            self._take(blocks)

    def free(self, sequence: Sequence, tokens: int, *, finished: bool) -> None:
        """Give all blocks back, the last first; full ones stay cached.

        What a finished sequence generated is cached as well, but no prompt of a trace names it.
        """
        lease: Lease = sequence.kv
        full = (tokens - sequence.unhashed) // self.block_size if self.prefix_caching else 0
        if finished:
            self._forks.pop(sequence, None)
        else:
            self._cache_all(lease, full)
        blocks = self._blocks(tokens) + self.fixed_blocks + (lease in self._grown)
        self._grown.discard(lease)
        self._release_own(lease, max(full, lease.path.end), blocks, cached=False)
        self._release_own(lease, lease.path.end, full, cached=True)
        released = self._tree.release(lease.path)
        self._held -= released
        if lease.path.end > released:
            self.saved_slots -= (lease.path.end - released) * self.block_size
        if lease.phase is not None:
            self._phases.leave(lease.phase)
        self._prefill_slack -= lease.slack
        sequence.kv = None
        del self._leases[sequence]

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
            for extent in self._tree.held(lease.path):
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
        held = [extent for extent in self._tree.extents() if extent.refs]
        shared = sum((extent.refs - 1) * (extent.end - extent.start) for extent in held)
        assert self.saved_slots == shared * self.block_size
