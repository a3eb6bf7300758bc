"""Contiguous ranges: where they lie, what reservation and fragmentation cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.core import NO_MATCH, Request, Sequence, Usage
from kvsim.memory.contiguous import Contiguous, Fit, Holes
from kvsim.memory.reservation import RESERVATIONS


def sequence(prompt: int, output: int) -> Sequence:
    return Sequence(Request(0, 0.0, prompt, output), 0)


def admit(memory: Contiguous, *lengths: int) -> list[Sequence]:
    """Sequences of these prompts, each with an answer of one token."""
    sequences = [sequence(length, 1) for length in lengths]
    for one in sequences:
        assert memory.admit(one, NO_MATCH, one.num_tokens)
    return sequences


@pytest.mark.parametrize(("rule", "slots"), [("max", 2048), ("pow2", 100 + 32), ("oracle", 125)])
def test_the_three_orca_baselines_reserve_as_the_paper_says(rule: str, slots: int) -> None:
    memory = Contiguous(4096, RESERVATIONS[rule](2048))
    memory.admit(sequence(100, 25), NO_MATCH, 100)
    memory.check()
    assert memory.usage() == Usage(100, slots - 125, 25, 0, 0, 4096 - slots)


def test_pow2_reserves_no_more_than_the_model_can_serve() -> None:
    assert RESERVATIONS["pow2"](2048).slots(sequence(1000, 1025)) == 2048


def test_decoding_turns_reserved_slots_into_used_ones() -> None:
    memory = Contiguous(100, RESERVATIONS["oracle"](100))
    one = sequence(10, 20)
    memory.admit(one, NO_MATCH, 10)
    one.num_computed = 10
    memory.join(one)
    assert memory.room(19) == 19
    memory.advance(19)
    assert memory.usage() == Usage(29, 0, 1, 0, 0, 70)
    memory.free(one, 29, finished=True)
    assert memory.usage() == Usage(0, 0, 0, 0, 0, 100)


def test_a_sequence_is_refused_although_enough_slots_are_free_in_pieces() -> None:
    memory = Contiguous(100, RESERVATIONS["oracle"](100))
    first, _, third, _ = admit(memory, 24, 24, 24, 24)
    memory.free(first, 24, finished=True)
    memory.free(third, 24, finished=True)
    waiting = sequence(29, 1)
    assert memory.usage().free == 50
    assert not memory.admit(waiting, NO_MATCH, 29)
    assert memory.usage() == Usage(48, 0, 2, 50, 0, 0)


def test_holes_are_external_fragmentation_only_while_the_refused_waits() -> None:
    memory = Contiguous(100, RESERVATIONS["oracle"](100))
    first, second = admit(memory, 49, 44)
    waiting = sequence(54, 1)
    assert not memory.admit(waiting, NO_MATCH, 54)
    assert memory.usage().external == 5
    memory.free(first, 49, finished=True)
    memory.free(second, 44, finished=True)
    assert memory.usage().external == 0
    assert memory.admit(waiting, NO_MATCH, 54)
    admit(memory, 40)
    assert memory.usage() == Usage(94, 0, 2, 0, 0, 4)


@pytest.mark.parametrize(("fit", "expected"), [("first", 0), ("best", 60)])
def test_first_fit_takes_the_lowest_hole_and_best_fit_the_smallest(fit: Fit, expected: int) -> None:
    holes = Holes(100, fit)
    for slots in (30, 30, 20, 20):
        holes.take(slots, 0)
    holes.give(0, 30)
    holes.give(60, 20)
    assert holes.take(15, 0) == expected


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 30)), max_size=60), st.sampled_from([*"fb"])
)
def test_holes_and_ranges_always_tile_the_space(moves: list[tuple[bool, int]], fit: str) -> None:
    holes = Holes(100, "first" if fit == "f" else "best")
    ranges: list[tuple[int, int]] = []
    for gives, number in moves:
        if gives and ranges:
            holes.give(*ranges.pop(number % len(ranges)))
        elif (address := holes.take(number, 0)) is not None:
            ranges.append((address, number))
        else:
            assert max(holes._sizes, default=0) < number
        holes.check(ranges)


def test_a_resumed_sequence_reserves_its_whole_room_again() -> None:
    memory = Contiguous(100, RESERVATIONS["oracle"](100))
    one = sequence(10, 20)
    memory.admit(one, NO_MATCH, 10)
    one.num_computed = 10
    memory.join(one)
    memory.advance(5)
    memory.free(one, 15, finished=False)
    one.num_tokens = 16
    assert memory.admit(one, NO_MATCH, 16)
    assert memory.usage() == Usage(16, 0, 14, 0, 0, 70)


def test_a_reservation_longer_than_the_pool_is_cut_to_it() -> None:
    memory = Contiguous(100, RESERVATIONS["max"](2048))
    assert memory.fits(100)
    assert not memory.fits(101)
    admit(memory, 10)
    assert memory.held_slots == 100


def test_a_watermark_keeps_slots_free() -> None:
    memory = Contiguous(100, RESERVATIONS["oracle"](100))
    assert not memory.admit(sequence(99, 1), NO_MATCH, 99, spare=1)
    assert memory.usage().external == 0
    assert not memory.admit(sequence(89, 1), NO_MATCH, 89, spare=11)
    assert memory.admit(sequence(89, 1), NO_MATCH, 89, spare=10)


def test_constant_state_is_used_from_the_start() -> None:
    memory = Contiguous(100, RESERVATIONS["oracle"](100), slots_per_sequence=7)
    memory.admit(sequence(10, 5), NO_MATCH, 4)
    assert memory.usage() == Usage(11, 0, 11, 0, 0, 78)
    assert memory.fits(93)
    assert not memory.fits(94)


class TooShort:
    """A rule that a plug-in could bring: it reserves less than sequences come to."""

    def slots(self, sequence: Sequence) -> int:
        return 12

    def final(self, sequence: Sequence) -> int:
        return sequence.request.prompt_tokens + sequence.request.output_tokens


def test_a_sequence_that_reaches_the_end_of_its_range_must_be_preempted_and_reserves_more() -> None:
    memory = Contiguous(100, TooShort())
    one = sequence(10, 20)
    memory.admit(one, NO_MATCH, 10)
    one.num_computed = 10
    memory.join(one)
    assert memory.room(9) == 2
    memory.advance(2)
    assert memory.room(1) == 0
    assert not memory.grow(one, 13)
    memory.check()
    memory.free(one, 12, finished=False)
    memory.check()
    one.num_tokens = 13
    assert memory.admit(one, NO_MATCH, 13)
    assert memory.held_slots == 13


def test_a_prompt_that_grows_beside_decoders_is_bounded_by_its_range_too() -> None:
    memory = Contiguous(100, TooShort())
    one = sequence(11, 20)
    memory.admit(one, NO_MATCH, 2)
    assert memory.room(9, one, 3) == 3
    assert memory.grow(one, 11)
    memory.check()
