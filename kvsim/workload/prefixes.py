"""What a prefix cache could save at best: an unbounded cache that holds every prompt seen before."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from kvsim.core import Request


class IdealCache:
    """Counts the hits of requests, one after another, in a cache that never forgets.

    A prompt hits as far as its blocks, from the first on, were seen in this order before: the same id
    after a different prefix is another block. Answers are not cached, as traces do not name them. A
    partial last block hits as a block, but its tokens do not count.
    """

    def __init__(self) -> None:
        self._children: dict[tuple[int, int], int] = {}
        self.blocks = 0
        self.block_hits = 0
        self.token_hits = 0

    @property
    def distinct_blocks(self) -> int:
        """Different blocks (an id and all before it) seen so far."""
        return len(self._children)

    def add(self, request: Request) -> None:
        """Look a prompt up, then keep it."""
        ids = request.hash_ids or []
        known = self._known(ids, request.hash_block)
        full = min(known, request.prompt_tokens // request.hash_block) if ids else 0
        self.blocks += len(ids)
        self.block_hits += known
        self.token_hits += full * request.hash_block

    def _known(self, ids: Seq[int], hash_block: int) -> int:
        """Blocks from the start that were there before; all are afterwards."""
        children = self._children
        node = -hash_block  # a root for each block size
        known = 0
        for own in ids:
            child = children.get((node, own))
            if child is None:
                child = children[node, own] = len(children) + 1
            else:
                known += 1
            node = child
        return known
