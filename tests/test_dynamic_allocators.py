"""Allocators that map or carve memory on demand: page groups, pages of blocks, slabs of size classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvsim import Scenario, simulate
from kvsim.catalog import load_model
from kvsim.compose import deploy, kv_tensors
from kvsim.core import NO_MATCH, PICOSECONDS, Request, Sequence
from kvsim.errors import CapacityError, ConfigError
from kvsim.layout import KVLayout
from kvsim.memory.kvcached import KvCached
from kvsim.memory.reservation import RESERVATIONS
from kvsim.memory.slab import Slab
from kvsim.memory.vattention import VAttention

CHAT = str(Path(__file__).resolve().parent.parent / "traces" / "chat.jsonl.gz")
KIB = 1 << 10


def sequence(prompt: int) -> Sequence:
    return Sequence(Request(0, 0.0, prompt, 1), 0)


def vattention(model: str, group: int, tensor_parallel: int = 1) -> VAttention:
    """The allocator of a model in a pool of a million slots."""
    layout = KVLayout(load_model(model), "auto", tensor_parallel)
    sizes = {"slot_bytes": layout.slot_bytes, "tensors": kv_tensors(layout)}
    return VAttention(1 << 20, **sizes, page_group=group, mapping="synchronous")


# vAttention.


@pytest.mark.parametrize(
    ("model", "kib", "tokens"),
    [
        ("llama-3-8b", 2048, 1024),  # 128 KiB a token in 64 tensors
        ("llama-3-8b", 64, 32),
        ("yi-6b", 2048, 2048),  # 64 KiB in 64
        ("yi-34b", 2048, 1024),  # 240 KiB in 120
        ("yi-34b", 64, 32),
    ],
)
def test_a_page_group_holds_as_many_tokens_as_in_the_paper(
    model: str, kib: int, tokens: int
) -> None:
    assert vattention(model, kib * KIB).block_size == tokens


def test_a_growth_step_of_yi_34b_is_120_calls_and_takes_about_5_ms() -> None:
    memory = vattention("yi-34b", 2 << 20, tensor_parallel=2)
    one = sequence(memory.block_size)
    assert memory.admit(one, NO_MATCH, memory.block_size)
    assert memory.waits() == 120 * 40 * PICOSECONDS // 10**6
    assert memory.waits() == 0  # paid once
    assert memory.grow(one, memory.block_size + 1)
    assert memory.waits() / PICOSECONDS == pytest.approx(0.0048)


def test_smaller_groups_waste_less_and_are_mapped_more_often() -> None:
    wasted, waits = {}, {}
    for kib in (2048, 64):
        memory = vattention("llama-3-8b", kib * KIB)
        assert memory.admit(sequence(1025), NO_MATCH, 1025)
        wasted[kib], waits[kib] = memory.usage().internal, memory.waits()
    assert wasted == {2048: 1023, 64: 31}
    assert waits[64] * 2 == waits[2048] * 33  # 33 groups against 2


def test_what_is_hidden_makes_nobody_wait() -> None:
    memory = VAttention(1 << 20)
    assert memory.admit(sequence(5000), NO_MATCH, 5000)
    assert memory.waits() == 0


def test_a_replay_that_maps_in_line_takes_longer_by_the_calls_of_its_iterations() -> None:
    settings = {"num_gpu_blocks_override": 4096, "workload": {"limit": 1}}
    times = {}
    for mapping in ("hidden", "synchronous"):
        allocator = {"name": "vattention", "mapping": mapping, "page_group": 64 * KIB}
        result = simulate(Scenario(allocator=allocator, **settings), CHAT)
        row = result.requests
        times[mapping] = (row.first_token[0] - row.arrival[0], row.finished[0] - row.arrival[0])
    prompt, answer = int(row.prompt_tokens[0]), int(row.output_tokens[0])
    groups = (-(-prompt // 32), -(-(prompt + answer - 1) // 32))
    for before, after, count in zip(times["hidden"], times["synchronous"], groups, strict=True):
        assert after - before == pytest.approx(count * 64 * 40e-6, abs=64 * 40e-6)


def test_nothing_is_shared_in_contiguous_ranges() -> None:
    result = simulate(Scenario(allocator="vattention", workload={"limit": 40}), CHAT)
    assert result.summary["prefix_cache_hits"] == 0
    assert result.summary["completed"] == 40


def test_an_engine_that_schedules_ahead_does_not_map_in_line() -> None:
    allocator = {"name": "vattention", "mapping": "synchronous"}
    with pytest.raises(ConfigError, match=r"mapping is synchronous.*accepted: hidden"):
        deploy(Scenario(allocator=allocator, engine="vllm"))


def test_a_group_that_holds_no_token_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"page_group is 1024.*at least 2048"):
        VAttention(1 << 20, page_group=KIB)
    with pytest.raises(CapacityError, match="no group of 1024 tokens"):
        VAttention(1000)


# kvcached.

PAGES = 32
"""Of 128 blocks: 4,096 blocks of 16 KiB in each of the two tensors of 8 layers, 1 GiB in all."""


def filled(selection: str) -> tuple[KvCached, list[Sequence]]:
    """Each block held by a sequence of its own, in the order of the blocks."""
    memory = KvCached(
        128 * PAGES + 1,
        slot_bytes=16 * KIB,
        tensors=16,
        max_cached_tokens=1 << 20,
        selection=selection,  # type: ignore[arg-type]
        reserved_pages=0,
    )
    assert memory.page_blocks == 128
    rows = [Sequence(Request(row, 0.0, 16, 1, [row], 16), 0) for row in range(128 * PAGES)]
    assert all(memory.admit(one, memory.match(one), 16) for one in rows)
    return memory, rows


def test_blocks_pin_few_pages_when_they_are_packed_and_all_when_they_are_spread() -> None:
    pinned = []
    for kept in (range(256), range(0, 4096, 16)):
        memory, rows = filled("page")
        for row in set(range(4096)) - set(kept):
            memory.free(rows[row], 16, finished=True)
        memory.trim(4096 - 256)
        memory.check()
        pinned.append(memory.pages)
    assert pinned == [2, 32]


@pytest.mark.parametrize(
    ("selection", "stride", "published"),
    [("page", stride, 0.88) for stride in (1, 2, 4, 8)]
    + [("age", 1, 0.84), ("age", 2, 0.75), ("age", 4, 0.50), ("age", 8, 0.03)],
)
def test_what_3584_of_4096_cached_blocks_give_back_is_what_the_repository_says(
    selection: str, stride: int, published: float
) -> None:
    memory, rows = filled(selection)
    for first in range(stride):  # neighbours in age lie a stride apart
        for row in rows[first::stride]:
            memory.free(row, 16, finished=True)
    memory.trim(3584)
    memory.check()
    given_back = (PAGES - memory.pages) / PAGES  # GiB
    assert given_back == pytest.approx(published, abs=1.2 / PAGES)  # a page and rounding
    assert memory.evictions == 3584


def test_no_more_stays_cached_than_the_limit() -> None:
    bounded = {"name": "kvcached", "max_cached_tokens": 2000}
    hits = [
        simulate(Scenario(allocator=allocator, workload={"limit": 60}), CHAT).summary
        for allocator in ("paged", "kvcached", bounded)
    ]
    paged, usual, few = (one["prefix_cache_hit_rate"] for one in hits)
    assert paged >= usual > few > 0  # type: ignore[operator]


def test_a_block_that_others_have_a_copy_of_can_go_before_those_that_follow_on_it() -> None:
    """Two compute the same prompt at once; who ends first leaves blocks in the midst of the other's."""
    memory = KvCached(64, block_size=1, max_cached_tokens=0)
    first, second = (Sequence(Request(row, 0.0, 9, 1, [1, 2, 3], 3), 0) for row in range(2))
    assert memory.admit(first, memory.match(first), 2)
    assert memory.admit(second, memory.match(second), 4)
    assert memory.grow(first, 6)
    memory.free(second, 4, finished=True)
    memory.check()
    memory.free(first, 6, finished=True)
    memory.check()
    assert memory.usage().cached == 0


def test_of_two_copies_the_one_that_others_follow_on_stays() -> None:
    """The copy that was released first is the next to be given out, before what follows on both."""
    memory = KvCached(10, block_size=1, slot_bytes=1, tensors=1, page_bytes=1)
    first, second = (Sequence(Request(row, 0.0, 9, 1, [1, 2, 3], 3), 0) for row in range(2))
    assert memory.admit(first, memory.match(first), 1)
    assert memory.admit(second, memory.match(second), 4)
    assert memory.grow(first, 2)
    memory.free(first, 2, finished=True)
    memory.free(second, 4, finished=True)
    memory.trim(1)
    memory.check()
    other = Sequence(Request(2, 0.0, 9, 1), 0)
    assert memory.admit(other, memory.match(other), 9)
    memory.check()


def test_pages_are_mapped_once_and_stay_in_reserve() -> None:
    memory = KvCached(4097, mapping="synchronous", reserved_pages=4, max_cached_tokens=0)
    one = sequence(5 * memory.page_blocks * 16)
    assert memory.admit(one, memory.match(one), one.num_tokens)
    assert memory.waits() == 5 * 64 * 230_500_000
    memory.free(one, one.num_tokens, finished=True)
    assert (memory.pages, memory.mapped) == (0, 4)
    again = sequence(5 * memory.page_blocks * 16)
    assert memory.admit(again, memory.match(again), again.num_tokens)
    assert memory.waits() == 64 * 230_500_000  # one more than the reserve


# Slabs.


def slab(slots: int, **options: float) -> Slab:
    return Slab(slots, RESERVATIONS["oracle"](slots), **options)  # type: ignore[arg-type]


def test_a_range_is_rounded_up_to_its_class() -> None:
    memory = slab(4096, slab_slots=1024, smallest=64, factor=2.0)
    assert memory.admit(sequence(100), NO_MATCH, 100)
    usage = memory.usage()
    assert (usage.used, usage.reserved, usage.external) == (100, 1, 27)  # of 128
    assert usage.free == 4096 - 128


def test_a_slab_serves_one_class_until_it_is_empty() -> None:
    memory = slab(2048, slab_slots=1024, smallest=64, factor=2.0)
    small = [sequence(63) for _ in range(17)]  # and a token of the answer
    assert all(memory.admit(one, NO_MATCH, 63) for one in small)  # 16 fill a slab
    assert not memory.admit(sequence(1000), NO_MATCH, 1000)  # 960 are free, in places of 64
    assert memory.usage().external == 2048 - 17 * 64
    memory.free(small[16], 63, finished=True)
    assert memory.admit(sequence(1000), NO_MATCH, 1000)


def test_finer_classes_waste_less() -> None:
    waste = []
    for factor in (2.0, 1.25):
        memory = slab(1 << 16, slab_slots=8192, smallest=16, factor=factor)
        while memory.admit(sequence(1100), NO_MATCH, 1100):
            pass
        waste.append(memory.usage().external / memory.total_slots)
    assert waste[1] < waste[0]


def test_no_sequence_is_longer_than_a_slab() -> None:
    assert slab(4096, slab_slots=1024).fits(1024)
    assert not slab(4096, slab_slots=1024).fits(1025)


def test_a_replay_through_slabs_serves_all() -> None:
    result = simulate(Scenario(allocator="slab", workload={"limit": 40}), CHAT)
    assert result.summary["completed"] == 40


@pytest.mark.parametrize(
    ("options", "message"), [({"factor": 1.0}, "factor is 1.0"), ({"smallest": 0}, "smallest 0")]
)
def test_classes_that_do_not_grow_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        slab(4096, **options)
