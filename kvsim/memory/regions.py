"""The pool as a picture: which part of it holds what, slot by slot.

Reads the books of the allocators that drive real memory (:mod:`kvsim.memory.mapped`), so that what is
shown lies where it would lie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import singledispatch
from typing import Literal, NamedTuple

from kvsim.memory.buddy import BuddyBlocks
from kvsim.memory.mapped import Ranges
from kvsim.memory.mapped_paged import MappedPaged
from kvsim.memory.mapped_radix import MappedRadix
from kvsim.protocols import Allocator

State = Literal["used", "shared", "internal", "reserved", "external", "cached"]
STATES: tuple[State, ...] = ("used", "shared", "internal", "reserved", "external", "cached")


class Region(NamedTuple):
    """Neighbouring slots in one state; what lies in no region is free."""

    start: int
    end: int
    """The slot after the last."""
    state: State
    owner: int | None
    """Row of the request that holds it; None for what is shared, cached or nobody's."""


@singledispatch
def regions(allocator: Allocator) -> Iterator[Region]:
    """Everything in the pool that is not free, in no order."""
    raise TypeError(f"{type(allocator).__name__} cannot be drawn")


@regions.register
def _(allocator: Ranges) -> Iterator[Region]:
    """What a sequence has filled, will fill, and never will; then what rounding and holes waste."""
    for held in allocator._running:
        filled = held.address + allocator._filled(held)
        ends = (filled, held.address + held.final, held.address + held.slots)
        start = held.address
        for end, state in zip(ends, ("used", "reserved", "internal"), strict=True):
            yield from _region(start, end, state, held.row)  # type: ignore[arg-type]
            start = max(start, end)
        if isinstance(allocator._space, BuddyBlocks):
            rounded = held.address + (1 << allocator._space._order(held.slots))
            yield from _region(start, rounded, "external", None)
    if allocator._refused is not None:
        for start, size in allocator._space.holes():
            if size < allocator._refused[1]:
                yield from _region(start, start + size, "external", None)


@regions.register
def _(allocator: MappedPaged) -> Iterator[Region]:
    """Blocks of running sequences, empty slots of their last ones, and cached blocks nobody holds."""
    size, tree = allocator.block_size, allocator._tree
    holders: Counter[int] = Counter()
    for lease in allocator._leases.values():
        holders.update(tree.tables[lease.path].blocks)
    for sequence, lease in allocator._leases.items():
        blocks, row = tree.tables[lease.path].blocks, sequence.request.row
        slack = lease.slack
        if lease.phase is not None:
            slack = (lease.phase - allocator._phases.step) % size
        slack += size * (lease in allocator._grown)
        yield from _blocks(blocks, size, holders, row, len(blocks) * size - slack)
    for extent in allocator._queue:
        if extent.cached:
            for block in tree.ids[extent]:
                yield Region(block * size, block * size + size, "cached", None)


@regions.register
def _(allocator: MappedRadix) -> Iterator[Region]:
    """Pages of running sequences, empty slots of their last ones, and unlocked nodes of the tree."""
    size, tree = allocator.page_size, allocator._tree
    holders: Counter[int] = Counter()
    for table in tree.tables.values():
        holders.update(table.blocks)
    for lease, table in tree.tables.items():
        row = lease.content.owner
        yield from _blocks(table.blocks, size, holders, row, allocator._filled(lease))
    for node, pages in tree.ids.items():
        if not node.locks:
            for page in pages:
                yield Region(page * size, page * size + size, "cached", None)


def _blocks(
    blocks: list[int], size: int, holders: Counter[int], row: int, filled: int
) -> Iterator[Region]:
    """The blocks of one sequence, of whose slots the first ``filled`` hold a token."""
    for place, block in enumerate(blocks):
        start = block * size
        end = start + min(size, max(0, filled - place * size))
        if holders[block] > 1:
            yield from _region(start, end, "shared", None)
        else:
            yield from _region(start, end, "used", row)
        yield from _region(end, start + size, "internal", row)


def _region(start: int, end: int, state: State, owner: int | None) -> Iterator[Region]:
    if start < end:
        yield Region(start, end, state, owner)
