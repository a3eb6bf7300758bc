"""The buddy allocator of the Orca baselines: ranges are powers of two, split and merged in pairs.

Source: Kwon et al., SOSP 2023 (arXiv:2309.06180), sections 3.1 and 6.1; its Figure 2 counts what the
rounding adds as external fragmentation.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvsim.memory.reservation import ReservationRule
from kvsim.memory.reserving import Reserving


class BuddyBlocks:
    """An address space of blocks of 2**order slots, the smallest of ``min_order``.

    A space that is no power of two is a forest: its largest power of two, then that of the rest, and
    so on. A block's buddy differs from it in one address bit, so that the trees never merge. A rest
    smaller than the smallest block is left out.
    """

    def __init__(self, total: int, min_order: int) -> None:
        self.total = total >> min_order << min_order
        self.free = self.total
        self.gap = 0
        self._min_order = min_order
        self._holes: list[dict[int, None]] = [{} for _ in range(self.total.bit_length())]
        address = 0
        for order in reversed(range(min_order, len(self._holes))):
            if self.total >> order & 1:
                self._holes[order][address] = None
                address += 1 << order

    @property
    def largest(self) -> int:
        """The largest power of two in the space."""
        return 1 << len(self._holes) - 1 if self._holes else 0

    def holds(self, slots: int) -> int:
        """Blocks of the order that ``slots`` need in the empty forest."""
        return self.total >> self._order(slots)

    def finds(self, slots: int) -> int:
        """Blocks of that order in the free ones."""
        order = self._order(slots)
        return sum(len(holes) << above for above, holes in enumerate(self._holes[order:]))

    def _order(self, slots: int) -> int:
        return max(self._min_order, (slots - 1).bit_length())

    def take(self, slots: int, spare: int) -> int | None:
        """The lower part of the smallest free block that holds ``slots``, split as often as it can."""
        order = self._order(slots)
        found = next((o for o in range(order, len(self._holes)) if self._holes[o]), None)
        if found is None or self.free - (1 << order) < spare:
            return None
        address, _ = self._holes[found].popitem()
        for smaller in reversed(range(order, found)):
            self._holes[smaller][address + (1 << smaller)] = None
        self._count(order, slots, -1)
        return address

    def give(self, address: int, slots: int) -> None:
        """Free the block and merge it with its buddy as long as that is free too."""
        order = self._order(slots)
        self._count(order, slots, 1)
        while (buddy := address ^ 1 << order) in self._holes[order]:
            del self._holes[order][buddy]
            address &= buddy
            order += 1
        self._holes[order][address] = None

    def _count(self, order: int, slots: int, sign: int) -> None:
        self.free += sign << order
        self.gap -= sign * ((1 << order) - slots)

    def useless(self, slots: int) -> int:
        """Free slots in blocks of a smaller order than ``slots`` need."""
        smaller = self._holes[: self._order(slots)]
        return sum(len(holes) << order for order, holes in enumerate(smaller))

    def holes(self) -> Iterable[tuple[int, int]]:
        """Address and size of every free block; buddies are never both free."""
        for order, addresses in enumerate(self._holes):
            yield from ((address, 1 << order) for address in addresses)

    def check(self, ranges: list[tuple[int, int]]) -> None:
        """Assert that blocks are aligned and tile the space, and that no two free ones should merge."""
        taken = [(address, self._order(slots)) for address, slots in ranges]
        holes = [(address, o) for o, starts in enumerate(self._holes) for address in starts]
        at = 0
        for address, order in sorted(taken + holes):
            assert address == at
            assert address % (1 << order) == 0
            at += 1 << order
        assert at == self.total
        assert self.free == sum(1 << order for _, order in holes)
        assert self.gap == sum((1 << self._order(slots)) - slots for _, slots in ranges)
        assert all(address ^ 1 << order not in self._holes[order] for address, order in holes)


class Buddy(Reserving):
    """Reserves one block of a power of two for each sequence.

    ``min_order``: the smallest block has ``2**min_order`` slots. ``slots_per_sequence`` is constant
    state (full windows, recurrent state) that every sequence needs besides its tokens.
    """

    def __init__(
        self,
        num_slots: int,
        reservation: ReservationRule,
        *,
        min_order: int = 0,
        slots_per_sequence: int = 0,
    ) -> None:
        super().__init__(BuddyBlocks(num_slots, min_order), reservation, slots_per_sequence)
