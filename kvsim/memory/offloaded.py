"""Paged memory whose blocks are also kept in the host's memory, which is larger."""

from __future__ import annotations

from kvsim.core import Match, Sequence
from kvsim.errors import ConfigError
from kvsim.memory.extents import Content, FreeQueue
from kvsim.memory.paged import Lease, Paged
from kvsim.memory.prefix import PrefixTree


class HostTier:
    """Blocks by content, in host memory; those that were used least recently are dropped."""

    def __init__(self, blocks: int) -> None:
        self._queue = FreeQueue(blocks)
        self._tree = PrefixTree(self._queue, cached=True)

    def hit(self, content: Content) -> int:
        """Blocks of the longest prefix that is here."""
        return self._tree.walk(content)[1]

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

    Every full block is copied to the host when it is computed, beside the GPU's work. What the GPU
    has given up and the host still has can be loaded instead of being computed again: that takes the
    link's time (:class:`kvsim.scheduling.offloading.Offloading`). Least recently used blocks go
    first. Source: vLLM 0.23.0 ``kv_connector/v1/offloading_connector.py``, ``kv_offload/lru_manager.py``.
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

    def _cache_prompt(self, lease: Lease, tokens: int) -> None:
        super()._cache_prompt(lease, tokens)
        content = lease.path.content
        self._host.store(content, min(tokens // self.block_size, content.shared))

    def free(self, sequence: Sequence, tokens: int, *, finished: bool) -> None:
        """Give all blocks back; what was generated is on the host, too."""
        lease: Lease = sequence.kv
        self._host.store(lease.path.content, tokens // self.block_size)
        super().free(sequence, tokens, finished=finished)
