"""Where a sequence's KV lies in real memory: the block tables that kernels read.

A simulated pool counts; it names no block. The classes of :mod:`kvsim.memory.mapped` decide as those
they are made from and in addition give each block that is taken an id, which is what an executor
needs to put the KV of real sequences there.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

from kvsim.core import Sequence
from kvsim.protocols import Allocator


class BlockTable:
    """The ids of the blocks that hold a running sequence's tokens, in their order."""

    __slots__ = ("blocks", "filled", "settled")

    def __init__(self, blocks: list[int], filled: int = 0) -> None:
        self.blocks = blocks
        self.filled = filled
        """Tokens, from the first, whose KV was there when the table was made (a hit, or a fork's);
        whoever computes or brings back more of a prompt counts it here."""
        self.settled = 0
        """Entries, from the first, that have not changed since the reader set this."""

    def replace(self, start: int, blocks: list[int]) -> None:
        """Put other blocks in the places from ``start`` on."""
        self.blocks[start : start + len(blocks)] = blocks
        self.settled = min(self.settled, start)


class Forked:
    """What forks leave to whoever moves KV, who clears both lists before the next iteration."""

    @cached_property
    def copies(self) -> list[tuple[int, int]]:
        """Blocks (from, to) that sequences share no more; slots where an entry is a range."""
        return []

    @cached_property
    def forks(self) -> list[tuple[Sequence, Sequence, int]]:
        """Who went on from whom: parent, child and the tokens that both have."""
        return []


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
        """As :attr:`Forked.copies`."""
        ...

    @property
    def forks(self) -> list[tuple[Sequence, Sequence, int]]:
        """As :attr:`Forked.forks`."""
        ...

    def table(self, sequence: Sequence) -> BlockTable:
        """The table of a running sequence, kept up to date until it is preempted or ends."""
        ...
