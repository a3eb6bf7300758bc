"""Slabs of size classes, as memcached and kernels keep them: no holes inside a slab, classes that waste."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from kvsim.errors import ConfigError
from kvsim.memory.reservation import ReservationRule
from kvsim.memory.reserving import Reserving


class Slabs:
    """An address space cut into slabs of equal size, each given to one size class while it is in use.

    A slab of a class holds as many ranges of that size as fit. One that is empty again goes back to
    all classes. Classes grow by a factor from the smallest to a whole slab.
    """

    def __init__(self, total: int, slab: int, smallest: int, factor: float) -> None:
        count = max(1, total // slab)
        self.slab = total // count
        self.total = self.free = count * self.slab
        self.gap = 0
        self._classes = _classes(min(smallest, self.slab), self.slab, factor)
        self._empty = list(range(count))[::-1]
        self._class_of: dict[int, int] = {}
        """Size of the ranges of each slab in use."""
        self._places: dict[int, list[int]] = {}
        """Free places of each slab in use, by number."""
        self._open: dict[int, dict[int, None]] = {size: {} for size in self._classes}
        """Slabs of each class that have a free place, in the order in which they got it."""

    @property
    def largest(self) -> int:
        """A whole slab."""
        return self.slab

    def holds(self, slots: int) -> int:
        """Ranges of the class that ``slots`` need, in all slabs."""
        return self.total // self.slab * (self.slab // self._class(slots))

    def finds(self, slots: int) -> int:
        """Places in slabs of the class, and in those of none."""
        size = self._class(slots)
        places = sum(len(self._places[slab]) for slab in self._open[size])
        return places + len(self._empty) * (self.slab // size)

    def _class(self, slots: int) -> int:
        return next(size for size in self._classes if size >= slots)

    def take(self, slots: int, spare: int) -> int | None:
        """A place in a slab of the smallest class that holds ``slots``, else in a new slab of it."""
        size = self._class(slots)
        if self.free - size < spare or not (self._open[size] or self._empty):
            return None
        slab = next(iter(self._open[size])) if self._open[size] else self._opened(size)
        places = self._places[slab]
        place = places.pop()
        if not places:
            del self._open[size][slab]
        self._count(size, slots, -1)
        return slab * self.slab + place * size

    def _opened(self, size: int) -> int:
        slab = self._empty.pop()
        self._class_of[slab] = size
        self._places[slab] = list(range(self.slab // size))[::-1]
        self._open[size][slab] = None
        return slab

    def give(self, address: int, slots: int) -> None:
        """Free the place; a slab without ranges goes back to all classes."""
        slab, offset = divmod(address, self.slab)
        size, places = self._class_of[slab], self._places[slab]
        places.append(offset // size)
        self._open[size][slab] = None
        self._count(size, slots, 1)
        if len(places) == self.slab // size:
            del self._class_of[slab], self._places[slab], self._open[size][slab]
            self._empty.append(slab)

    def _count(self, size: int, slots: int, sign: int) -> None:
        self.free += sign * size
        self.gap -= sign * (size - slots)

    def useless(self, slots: int) -> int:
        """Free slots in slabs of other classes, and what no range of its slab's class can use."""
        size = self._class(slots)
        rest = self.free - len(self._empty) * self.slab
        return rest - sum(len(self._places[slab]) * size for slab in self._open[size])

    def holes(self) -> Iterable[tuple[int, int]]:
        """Address and size of every empty slab, free place and rest of a slab."""
        for slab in self._empty:
            yield slab * self.slab, self.slab
        for slab, size in self._class_of.items():
            start = slab * self.slab
            yield from ((start + place * size, size) for place in self._places[slab])
            if rest := self.slab % size:
                yield start + self.slab - rest, rest

    def check(self, ranges: list[tuple[int, int]]) -> None:
        """Assert that ranges and holes tile the space, and that each range lies in its class."""
        taken = [(at, self._class(slots)) for at, slots in ranges]
        assert all(self._class_of[at // self.slab] == size for at, size in taken)
        at = 0
        for address, size in sorted(taken + list(self.holes())):
            assert address == at
            at += size
        assert at == self.total
        assert self.free == sum(size for _, size in self.holes())
        assert self.gap == sum(self._class(slots) - slots for _, slots in ranges)


def _classes(smallest: int, largest: int, factor: float) -> list[int]:
    """Sizes that grow by a factor, each at least by one, up to the largest."""
    sizes = [smallest]
    while sizes[-1] < largest:
        sizes.append(min(largest, max(sizes[-1] + 1, int(sizes[-1] * factor))))
    assert all(a < b for a, b in pairwise(sizes))
    return sizes


class Slab(Reserving):
    """Reserves a place of a size class for each sequence, in slabs of ``slab_slots`` slots.

    ``factor`` between classes wastes less when it is small, and leaves more slabs half empty. No
    sequence can be longer than a slab. ``slots_per_sequence`` is constant state that every sequence
    needs besides its tokens. Source: Bonwick, USENIX 1994; memcached's growth factor of 1.25.
    """

    def __init__(
        self,
        num_slots: int,
        reservation: ReservationRule,
        *,
        slab_slots: int = 131_072,
        smallest: int = 16,
        factor: float = 1.25,
        slots_per_sequence: int = 0,
    ) -> None:
        if min(slab_slots, smallest) < 1:
            raise ConfigError(
                f"allocator.slab_slots is {slab_slots} and allocator.smallest {smallest}; "
                "accepted: 1 or more"
            )
        if not 1 < factor <= 16:
            raise ConfigError(f"allocator.factor is {factor}; accepted: above 1, at most 16")
        space = Slabs(num_slots, slab_slots, smallest, factor)
        super().__init__(space, reservation, slots_per_sequence)
