"""Paged memory whose blocks are also kept in the host's memory, which is larger."""

from __future__ import annotations

from collections.abc import Iterable

from kvsim.core import Match, Sequence
from kvsim.errors import ConfigError
from kvsim.memory.block_pool import Lease
from kvsim.memory.extents import Content, FreeQueue
from kvsim.memory.paged import Paged
from kvsim.memory.prefix import PrefixTree


class HostTier:
    """Blocks by content, in host memory; those that were used least recently are dropped."""

    def __init__(self, blocks: int) -> None:
        self._queue = FreeQueue(blocks)
        self._tree = PrefixTree(self._queue, cached=True)

    def hit(self, content: Content) -> int:
        """Blocks of the longest prefix that is here. To look them up is to use them."""
        hit, blocks = self._tree.walk(content)
        self._tree.release(self._tree.hold(content, hit, blocks))
        return blocks

    def store(self, content: Content, upto: int) -> None:
        """Have the first ``upto`` blocks here, or as many as fit, as those used last."""
        hit, blocks = self._tree.walk(content)
        blocks = min(blocks, upto)
        while hit and hit[-1].start >= blocks:
            hit.pop()
        path = self._tree.hold(content, hit, blocks)
        new = min(upto - blocks, self._queue.blocks)
        self._queue.take(new, self._tree.forget)
        self._tree.extend(path, min(blocks + new, content.shared))
        self._tree.extend(path, blocks + new)
        self._tree.release(path)


class Offloaded(Paged):
    """Paged memory with a tier of ``host_blocks`` blocks in host memory behind its prefix cache.

    Every full block of a prompt is copied to the host when it is computed, beside the GPU's work; what
    is generated is not (``offload_prompt_only``). What the GPU has given up and the host still has can
    be loaded instead of being computed again: that takes the link's time
    (:class:`kvsim.scheduling.offloading.Offloading`). Least recently stored or looked up goes first.
    Source: vLLM 0.23.0 ``kv_connector/v1/offloading/scheduler.py``, ``kv_offload/cpu/manager.py``.
    """

    def __init__(
        self,
        num_blocks: int,
        *,
        host_blocks: int = 0,
        block_size: int = 16,
        free_order: str = "vllm-0.23",
    ) -> None:
        if host_blocks < 0:
            raise ConfigError(f"host_blocks is {host_blocks}; accepted: 0 or more")
        super().__init__(num_blocks, block_size=block_size, free_order=free_order)
        self._host = HostTier(host_blocks)

    def on_host(self, sequence: Sequence, match: Match) -> int:
        """Tokens beyond a match that can be loaded, short of the last token."""
        content, _ = match.handle
        blocks = min(self._host.hit(content), (sequence.num_tokens - 1) // self.block_size)
        return max(0, blocks * self.block_size - match.tokens)

    def load(
        self, sequence: Sequence, match: Match, tokens: int, under_way: Iterable[Sequence]
    ) -> bool:
        """Take the hit and room for ``tokens`` tokens, if prompts under way keep enough."""
        kept, hit = sum(map(self._missing, under_way)), match.tokens // self.block_size
        _, path = match.handle
        if self._blocks(tokens) - hit + self._idle(path, hit) + kept > self._queue.blocks:
            return False
        return self.admit(sequence, match, tokens)

    def resume(self, sequence: Sequence, tokens: int) -> bool:
        """Make room for a loaded sequence's first ``tokens`` tokens, if all of them would fit."""
        return self._missing(sequence) <= self._queue.blocks and self.grow(sequence, tokens)

    def _missing(self, sequence: Sequence) -> int:
        """Blocks that its known tokens need beyond those that it has."""
        return max(0, self._blocks(sequence.num_tokens) - self._leases[sequence].blocks)

    def _cache_prompt(self, lease: Lease, tokens: int) -> None:
        super()._cache_prompt(lease, tokens)
        content = lease.path.content
        self._host.store(content, min(tokens // self.block_size, content.shared))
