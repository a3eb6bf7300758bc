"""The engine's step time: exact in leaps, never below the physical bound, monotone in work."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.catalog import load_gpu, load_model
from kvsim.core import BatchShape
from kvsim.costs.roofline import Roofline
from kvsim.costs.served import Served
from kvsim.layout import KVLayout
from tests.oracles.costs import advanced

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
    cost = Served(KVLayout(load_model(model), dtype), load_gpu("h200"))
    assert cost.time(shape, steps) == sum(cost.time(advanced(shape, i)) for i in range(steps))


@settings(max_examples=80, deadline=None)
@given(shape=shapes())
def test_no_iteration_beats_the_memory_and_the_arithmetic_of_the_gpu(shape: BatchShape) -> None:
    layout, gpu = KVLayout(load_model("llama-3-8b")), load_gpu("h200")
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
    assert Served(layout, gpu).time(shape) >= bound.time(shape)


def test_decodes_of_very_different_lengths_take_longer() -> None:
    cost = Served(KVLayout(load_model("llama-3-8b")), load_gpu("h200"))
    equal = BatchShape(8, 80_000, sampled=8, context_squares=8 * 10_000**2)
    mixed = equal._replace(context_squares=4 * 19_000**2 + 4 * 1_000**2)
    assert cost.time(mixed) > 1.03 * cost.time(equal)
