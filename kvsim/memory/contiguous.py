"""Contiguous pre-allocation: one address range a sequence, out of a space with real holes.

External fragmentation is not a formula here. A sequence that finds no hole large enough is refused,
however many slots are free in all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Literal

from kvsim.memory.reservation import ReservationRule
from kvsim.memory.reserving import Reserving

Fit = Literal["first", "best"]


class Holes:
    """An address space as its free holes, in address order; neighbouring holes are one."""

    gap = 0

    def __init__(self, total: int, fit: Fit) -> None:
        self.total = total
        self.free = total
        self._fit = fit
        self._starts = [0] if total else []
        self._sizes = [total] if total else []

    @property
    def largest(self) -> int:
        """The whole space."""
        return self.total

    def holds(self, slots: int) -> int:
        """Ranges side by side."""
        return self.total // slots

    def finds(self, slots: int) -> int:
        """Ranges side by side in every hole."""
        return sum(size // slots for size in self._sizes)

    def take(self, slots: int, spare: int) -> int | None:
        """Cut a range from the front of the first hole (or the smallest, lowest) that holds it."""
        index = self._find(slots)
        if index is None or self.free - slots < spare:
            return None
        address = self._starts[index]
        self._starts[index] += slots
        self._sizes[index] -= slots
        if not self._sizes[index]:
            del self._starts[index], self._sizes[index]
        self.free -= slots
        return address

    def _find(self, slots: int) -> int | None:
        holes = ((size, i) for i, size in enumerate(self._sizes) if size >= slots)
        hole = min(holes, default=None) if self._fit == "best" else next(holes, None)
        return None if hole is None else hole[1]

    def give(self, address: int, slots: int) -> None:
        """Make the range a hole again, joined to the holes on either side."""
        starts, sizes = self._starts, self._sizes
        index = bisect_left(starts, address)
        self.free += slots
        if index < len(starts) and starts[index] == address + slots:
            slots += sizes[index]
            del starts[index], sizes[index]
        if index and starts[index - 1] + sizes[index - 1] == address:
            sizes[index - 1] += slots
        else:
            starts.insert(index, address)
            sizes.insert(index, slots)

    def useless(self, slots: int) -> int:
        """Free slots in holes shorter than ``slots``."""
        return sum(size for size in self._sizes if size < slots)

    def holes(self) -> Iterable[tuple[int, int]]:
        """Address and size of every hole, by address."""
        return zip(self._starts, self._sizes, strict=True)

    def check(self, ranges: list[tuple[int, int]]) -> None:
        """Assert that ranges and holes tile the space and that no two holes touch."""
        holes = list(zip(self._starts, self._sizes, strict=True))
        at = 0
        for address, slots in sorted(ranges + holes):
            assert address == at
            assert slots > 0
            at += slots
        assert at == self.total
        assert self.free == sum(self._sizes)
        ends = {start + size for start, size in holes}
        assert ends.isdisjoint(self._starts)


class Contiguous(Reserving):
    """Reserves one contiguous range for each sequence, by first or best fit.

    ``slots_per_sequence`` is constant state (full windows, recurrent state) that every sequence
    needs besides its tokens.
    """

    def __init__(
        self,
        num_slots: int,
        reservation: ReservationRule,
        *,
        fit: Fit = "first",
        slots_per_sequence: int = 0,
    ) -> None:
        super().__init__(Holes(num_slots, fit), reservation, slots_per_sequence)
