"""Allocators with a mistake planted in them: two sequences have the same memory."""

from __future__ import annotations

from kvsim.core import Sequence
from kvsim.memory.block_table import Mapped
from kvsim.memory.mapped import MappedBuddy, MappedContiguous, Ranges
from kvsim.memory.mapped_paged import MappedPaged
from kvsim.memory.mapped_radix import MappedRadix


class FreesABlock(MappedPaged):
    """Lets the last full block of a running sequence's own be given out once more."""

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        grown = super().grow(sequence, tokens)
        own = self.table(sequence).blocks[sequence.kv.path.end :]
        extent = next(iter(self._queue), None)
        if grown and own and extent is not None:
            self._tree.ids[extent].append(own[0])
            extent.end += 1
        return grown


class FreesAPage(MappedRadix):
    """Lets the page of a decoder's newest token be given out once more."""

    def join(self, sequence: Sequence) -> None:
        super().join(sequence)
        self._tree.free.append(self.table(sequence).blocks[-1])


class Overlapping(Ranges):
    """Begins a range in the one before it."""

    def _hold(self, sequence: Sequence, address: int, slots: int, tokens: int) -> None:
        super()._hold(sequence, address, slots, tokens)
        sequence.kv.table.blocks[0] = max(0, address - 12)


class OverlappingContiguous(Overlapping, MappedContiguous):
    """Of any addresses."""


class OverlappingBuddy(Overlapping, MappedBuddy):
    """Of addresses by powers of two."""


MISTAKEN: dict[str, type[Mapped]] = {
    "paged": FreesABlock,
    "radix": FreesAPage,
    "contiguous": OverlappingContiguous,
    "buddy": OverlappingBuddy,
}
