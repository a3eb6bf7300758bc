"""The engine's step time: exact in leaps, never below the physical bound, and its kernels' rules."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.catalog import load_gpu, load_model
from kvsim.core import BatchShape
from kvsim.costs.roofline import Roofline
from kvsim.costs.served import Served
from kvsim.costs.splits import SPREADS, imbalance, longest, spread_of
from kvsim.layout import KVLayout
from tests.oracles.costs import advanced


@cache
def cost_of(model: str, dtype: str = "auto", **options: object) -> Served:
    return Served(KVLayout(load_model(model), dtype), load_gpu("h200"), **options)  # type: ignore[arg-type]


MODELS = ["llama-3-8b", "qwen2.5-32b", "deepseek-v2-lite", "gpt-oss-20b", "qwen3-30b-a3b"]


@st.composite
def shapes(draw: st.DrawFn) -> BatchShape:
    lengths = draw(st.lists(st.integers(1, 40_000), max_size=70))
    new = draw(st.sampled_from([0, 0, 1, 200, 300, 2048]))
    cached = draw(st.integers(0, 30_000)) if new else 0
    return BatchShape(
        len(lengths),
        sum(lengths),
        int(new > 0),
        new,
        cached,
        new * cached + new * (new + 1) // 2,
        len(lengths),
        sum(length * length for length in lengths),
    )


@pytest.mark.parametrize("dtype", ["auto", "fp8"])
@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=40, deadline=None)
@given(shape=shapes(), steps=st.integers(1, 200))
def test_a_leap_takes_exactly_what_its_iterations_take(
    model: str, dtype: str, shape: BatchShape, steps: int
) -> None:
    if not shape.decodes and not shape.prefills:
        return
    cost = cost_of(model, dtype)
    assert cost.time(shape, steps) == sum(cost.time(advanced(shape, i)) for i in range(steps))


def test_decodes_are_padded_to_the_sizes_that_were_captured() -> None:
    shape = BatchShape(40, 40_000, sampled=40)
    exact, near, far = (
        cost_of("llama-3-8b", captured=sizes).time(shape) for sizes in ((), (8, 64, 256), (8, 256))
    )
    assert exact < near < far


@pytest.mark.parametrize("dtype", ["auto", "fp8"])
@settings(max_examples=40, deadline=None)
@given(shape=shapes())
def test_no_iteration_beats_the_memory_and_the_arithmetic_of_the_gpu(
    dtype: str, shape: BatchShape
) -> None:
    layout, gpu = KVLayout(load_model("llama-3-8b"), dtype), load_gpu("h200")
    bound = Roofline(
        layout,
        gpu,
        memory_efficiency=1,
        gemm_efficiency=1,
        attention_efficiency=1,
        layer_overhead=0,
        prompt_overhead=0,
        sequence_overhead=0,
    )
    assert cost_of("llama-3-8b", dtype).time(shape) >= bound.time(shape)


def decoding(contexts: list[int]) -> BatchShape:
    squares = sum(context * context for context in contexts)
    return BatchShape(len(contexts), sum(contexts), sampled=len(contexts), context_squares=squares)


def test_contexts_that_do_not_divide_evenly_wait_for_the_busiest_multiprocessor() -> None:
    cost = cost_of("llama-3-8b")
    even, uneven = decoding([10_000] * 8), decoding([7_000, 13_000] * 4)
    assert cost.time(uneven) > 1.03 * cost.time(even)
    assert imbalance(8, 8, 0, 132) < 1.05  # 8 sequences, 8 KV heads, 2 splits: 128 of 132
    assert imbalance(9, 8, 0, 132) > 1.5  # 144 splits: 12 wait for a second round
    three_splits_in_two_rounds, two_in_one = 2 / 3 * 132 / 59, 1 / 2 * 132 / 60
    assert imbalance(59, 1, 0, 132) == pytest.approx(three_splits_in_two_rounds)
    assert imbalance(60, 1, 0, 132) == pytest.approx(two_in_one)


def test_what_waits_is_what_is_read_and_not_a_launch() -> None:
    layout, short, long = one_head(), decoding([50]), decoding([40_000])
    waiting, evenly = (Served(layout, load_gpu("h200"), tail=tail) for tail in (0.5, 0))
    assert imbalance(1, 1, 0, 132) > 4  # 32 splits on 132 multiprocessors
    assert waiting.time(short) < 1.001 * evenly.time(short)
    assert waiting.time(long) > 1.05 * evenly.time(long)


@pytest.mark.parametrize("gpu", ["h200", "a100-80gb"])
@pytest.mark.parametrize("dtype", ["auto", "fp8"])
def test_while_multiprocessors_are_idle_fewer_decodes_are_never_dearer(
    dtype: str, gpu: str
) -> None:
    cost = Served(one_head(dtype), load_gpu(gpu))
    for context in (50, 8_000, 50_000, 400_000):
        times = [cost.time(decoding([context] * count)) for count in (1, 2, 3, 4)]
        assert times == sorted(times)


def one_head(dtype: str = "auto") -> KVLayout:
    return KVLayout(load_model("llama-3-8b"), dtype, tensor_parallel=8)


def test_the_longest_of_more_contexts_is_longer() -> None:
    for spread in range(1, len(SPREADS)):
        found = [longest(count, spread) for count in range(2, 130)]
        assert all(after > 0.99 * before for before, after in pairwise(found))


def test_many_sequences_share_the_work_evenly_without_being_split() -> None:
    assert imbalance(512, 8, 5, 132) < 1.1


def test_grown_contexts_are_less_unequal() -> None:
    place, steps = spread_of(decoding([1_000, 3_000]))
    assert SPREADS[place] == 45
    later = decoding([1_000 + steps, 3_000 + steps])
    assert spread_of(later)[0] == place - 1
    assert spread_of(decoding([999 + steps, 2_999 + steps]))[0] == place


def test_a_prompt_that_is_read_in_chunks_beside_decodes_slows_their_attention_down() -> None:
    cost = cost_of("llama-3-8b")
    prompt = BatchShape(0, 0, 1, 2048, 0, 2048 * 2049 // 2)
    both = decoding([8_000] * 16)._replace(prefills=1, prefill_tokens=2032, prefill_pairs=2_065_528)
    apart = cost.time(prompt) + cost.time(decoding([8_000] * 16)) - cost.time(decoding([16] * 16))
    assert cost.time(both) > apart


def test_a_large_batch_waits_for_its_longest_context_whose_attention_is_not_split() -> None:
    cost = cost_of("llama-3-8b", captured=(256,))
    one, three, short = (
        cost.time(beside(chunk, decodes)) - cost.time(beside(chunk, [16] * len(decodes)))
        for chunk, decodes in ((2045, [32_000]), (2045, [32_000] * 3), (200, [32_000]))
    )
    assert three < 1.05 * one  # 3 % measured: the others are read at the same time
    assert one > 4 * short  # as many tokens as captured: split among all multiprocessors
    later = beside(2045, [32_000], past=60_000)
    alone = BatchShape(0, 0, 1, 2045, 60_000, later.prefill_pairs, 1)
    assert cost.time(later) - cost.time(alone) < one / 2  # hidden behind a prompt's own


def test_a_batch_waits_longer_for_unequal_contexts_and_no_longer_than_a_window() -> None:
    cost, windowed = cost_of("llama-3-8b"), cost_of("mistral-7b-v0.1")
    even, uneven = ([20_000] * 8, [5_000, 35_000] * 4)
    assert cost.time(beside(2040, uneven)) > 1.05 * cost.time(beside(2040, even))
    assert windowed.time(beside(2040, uneven)) < 1.02 * windowed.time(beside(2040, even))


def beside(new: int, contexts: list[int], *, past: int = 0) -> BatchShape:
    """Decodes and a chunk of a prompt."""
    pairs = new * past + new * (new + 1) // 2
    return decoding(contexts)._replace(
        prefills=1, prefill_tokens=new, prefill_context=past, prefill_pairs=pairs
    )


def test_random_weights_that_reach_few_experts_are_faster() -> None:
    every, few = cost_of("deepseek-v2-lite"), cost_of("deepseek-v2-lite", expert_growth=0.24)
    assert few.time(decoding([1_000] * 64)) < 0.7 * every.time(decoding([1_000] * 64))
    assert few.time(decoding([1_000])) == every.time(decoding([1_000]))
