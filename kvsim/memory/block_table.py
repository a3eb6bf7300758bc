"""Where a sequence's KV lies in real memory: the block tables that kernels read.

A simulated pool counts; it names no block. The classes of :mod:`kvsim.memory.mapped` decide as those
they are made from and in addition give each block that is taken an id, which is what an executor
needs to put the KV of real sequences there.
"""

from __future__ import annotations

from typing import Protocol

from kvsim.core import Sequence
from kvsim.protocols import Allocator


class BlockTable:
    """The ids of the blocks that hold a running sequence's tokens, in their order."""

    __slots__ = ("blocks", "settled")

    def __init__(self, blocks: list[int]) -> None:
        self.blocks = blocks
        self.settled = 0
        """Entries, from the first, that have not changed since the reader set this."""

    def replace(self, start: int, blocks: list[int]) -> None:
        """Put other blocks in the places from ``start`` on."""
        self.blocks[start : start + len(blocks)] = blocks
        self.settled = min(self.settled, start)


class Mapped(Allocator, Protocol):
    """An allocator that can say which memory a sequence has."""

    @property
    def entries(self) -> int:
        """Every id in a table is at least 0 and less than this."""
        ...

    @property
    def entry_tokens(self) -> int | None:
        """Tokens that one entry of a table covers: id ``i`` is the slots from ``i * entry_tokens`` on.

        None: a table has one entry, the first slot of the range that holds the whole sequence.
        """
        ...

    @property
    def copies(self) -> list[tuple[int, int]]:
        """Blocks (from, to) to be copied before the next iteration; whoever does it clears them.

        Slots where an entry is a range.
        """
        ...

    @property
    def forks(self) -> list[tuple[Sequence, Sequence, int]]:
        """Sequences that went on from others (parent, child, tokens); whoever reads clears them."""
        ...

    def table(self, sequence: Sequence) -> BlockTable:
        """The table of a running sequence, kept up to date until it is preempted or ends."""
        ...
