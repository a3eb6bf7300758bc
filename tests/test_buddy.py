"""The buddy allocator: powers of two, split and merged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvsim.core import NO_MATCH, Request, Sequence, Usage
from kvsim.memory.buddy import Buddy, BuddyBlocks
from kvsim.memory.reservation import RESERVATIONS


def sequence(prompt: int, output: int) -> Sequence:
    return Sequence(Request(0, 0.0, prompt, output), 0)


def test_a_block_is_split_down_to_the_size_that_is_needed() -> None:
    blocks = BuddyBlocks(64, 0)
    assert blocks.take(5, 0) == 0
    assert (blocks.free, blocks.gap) == (56, 3)
    assert [blocks.take(n, 0) for n in (8, 16, 32)] == [8, 16, 32]
    assert blocks.take(1, 0) is None


def test_freed_buddies_merge_back_to_the_whole() -> None:
    blocks = BuddyBlocks(64, 0)
    ranges = [(blocks.take(8, 0) or 0, 8) for _ in range(8)]
    assert blocks.take(8, 0) is None
    for one in ranges:
        blocks.give(*one)
    assert blocks.take(64, 0) == 0


def test_neighbours_that_are_no_buddies_do_not_merge() -> None:
    blocks = BuddyBlocks(32, 0)
    for _ in range(4):
        blocks.take(8, 0)
    blocks.give(8, 8)
    blocks.give(16, 8)
    assert blocks.take(16, 0) is None
    assert blocks.useless(16) == 16


def test_a_space_that_is_no_power_of_two_is_a_forest() -> None:
    blocks = BuddyBlocks(100, 2)
    assert (blocks.total, blocks.largest) == (100, 64)
    assert [blocks.take(n, 0) for n in (64, 32, 4)] == [0, 64, 96]
    assert BuddyBlocks(103, 2).total == 100
    assert BuddyBlocks(3, 2).largest == 0


def test_no_block_is_smaller_than_the_minimum_order() -> None:
    memory = Buddy(64, RESERVATIONS["oracle"](64), min_order=4)
    memory.admit(sequence(2, 1), NO_MATCH, 2)
    assert memory.usage() == Usage(2, 0, 1, 13, 0, 48)


def test_rounding_is_external_fragmentation_and_unused_reservation_internal() -> None:
    memory = Buddy(4096, RESERVATIONS["pow2"](2048))
    memory.admit(sequence(100, 25), NO_MATCH, 100)
    memory.check()
    assert memory.usage() == Usage(100, 7, 25, 256 - 132, 0, 4096 - 256)
    assert memory.held_slots == 132


def test_a_longer_sequence_than_the_largest_block_never_fits() -> None:
    memory = Buddy(100, RESERVATIONS["oracle"](100))
    assert memory.fits(64)
    assert not memory.fits(65)


def test_a_watermark_counts_the_whole_block() -> None:
    memory = Buddy(64, RESERVATIONS["oracle"](64))
    assert not memory.admit(sequence(16, 1), NO_MATCH, 16, spare=33)
    assert memory.admit(sequence(16, 1), NO_MATCH, 16, spare=32)


@given(
    st.integers(0, 100),
    st.integers(0, 3),
    st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=60),
)
def test_blocks_tile_the_space_and_are_refused_only_for_want_of_a_large_one(
    total: int, min_order: int, moves: list[tuple[bool, int]]
) -> None:
    blocks = BuddyBlocks(total, min_order)
    ranges: list[tuple[int, int]] = []
    for gives, number in moves:
        if gives and ranges:
            blocks.give(*ranges.pop(number % len(ranges)))
        elif (address := blocks.take(number, 0)) is not None:
            ranges.append((address, number))
        else:
            assert blocks.useless(number) == blocks.free
        blocks.check(ranges)
    for one in ranges:
        blocks.give(*one)
    assert blocks.useless(blocks.largest or 1) + (blocks.largest) == blocks.total
