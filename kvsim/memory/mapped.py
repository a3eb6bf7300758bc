"""The allocators that can drive real memory: each decides as the simulated one of its name."""

from __future__ import annotations

from kvsim.core import Sequence
from kvsim.memory.block_table import BlockTable, Forked, Mapped
from kvsim.memory.buddy import Buddy
from kvsim.memory.contiguous import Contiguous
from kvsim.memory.mapped_paged import MappedPaged
from kvsim.memory.mapped_radix import MappedRadix
from kvsim.memory.reserving import Range, Reserving


class Ranges(Forked, Reserving):
    """Tables of one entry: the first slot of the sequence's range."""

    @property
    def entries(self) -> int:
        """All slots."""
        return self._space.total

    @property
    def entry_tokens(self) -> None:
        """A range holds the whole sequence."""
        return

    def table(self, sequence: Sequence) -> BlockTable:
        """The address of a running sequence's range."""
        held: Range = sequence.kv
        return held.table

    def fork(self, parent: Sequence, child: Sequence, tokens: int) -> bool:
        """Give the child a range of its own, into which the parent's tokens are copied."""
        if not super().fork(parent, child, tokens):
            return False
        pair = (parent.kv.address, child.kv.address)
        self.copies.extend(zip(*(range(at, at + tokens) for at in pair), strict=True))
        self.forks.append((parent, child, tokens))
        child.kv.table.filled = tokens
        return True

    def _hold(self, sequence: Sequence, address: int, slots: int, tokens: int) -> None:
        super()._hold(sequence, address, slots, tokens)
        sequence.kv.table = BlockTable([address])
        sequence.kv.row = sequence.request.row


class MappedContiguous(Ranges, Contiguous):
    """:class:`Contiguous` with its addresses."""


class MappedBuddy(Ranges, Buddy):
    """:class:`Buddy` with its addresses."""


MAPPED: dict[str, type[Mapped]] = {
    "contiguous": MappedContiguous,
    "buddy": MappedBuddy,
    "paged": MappedPaged,
    "radix": MappedRadix,
}
