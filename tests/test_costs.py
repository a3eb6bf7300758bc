"""Step times: sums are exact, bounds are physical, and an H200's measured steps are met."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.catalog import load_gpu, load_model
from kvsim.core import BatchShape, picoseconds
from kvsim.costs import COST_MODELS, Fixed, Measured, Roofline
from kvsim.costs.series import affine_sum, clipped_sum, larger_sum
from kvsim.errors import ConfigError
from kvsim.layout import KVLayout
from tests.oracles.costs import advanced

H200 = load_gpu("h200")
PLACES = {
    "llama-3-8b": 1,
    "llama-3-70b": 8,
    "mixtral-8x7b": 2,
    "deepseek-v3": 8,
    "deepseek-v3.2": 8,
    "deepseek-v4-flash": 4,
    "gemma-3-27b": 1,
    "gpt-oss-120b": 2,
    "mistral-7b-v0.1": 1,
    "llama-4-scout": 4,
    "qwen3-next-80b-a3b": 2,
    "jamba-1.5-mini": 1,
    "nemotron-h-56b": 4,
}
ROOFLINES = {
    name: Roofline(KVLayout(load_model(name), tensor_parallel=tensor), H200)
    for name, tensor in PLACES.items()
}
rooflines = st.sampled_from(sorted(ROOFLINES)).map(ROOFLINES.__getitem__)


@st.composite
def shapes(draw: st.DrawFn) -> BatchShape:
    """A decode batch, a chunk, or both; the chunk small enough that memory may bound it."""
    decodes = draw(st.integers(0, 300))
    context = draw(st.integers(0, 400)) * decodes + draw(st.integers(0, 5000)) * (decodes > 0)
    if draw(st.booleans()):
        return BatchShape(decodes, context, sampled=decodes)
    new = draw(st.one_of(st.integers(1, 40), st.integers(1, 9000)))
    cached = draw(st.one_of(st.integers(0, 300), st.integers(0, 100_000)))
    pairs = new * cached + new * (new + 1) // 2
    return BatchShape(decodes, context, 1, new, cached, pairs, decodes)


@given(rooflines, shapes(), st.integers(1, 60))
def test_a_leap_takes_exactly_the_sum_of_its_steps(
    roofline: Roofline, shape: BatchShape, steps: int
) -> None:
    total, last = 0, shape
    for _ in range(steps):
        total += roofline.time(last)
        last = advanced(last, 1)
    assert roofline.time(shape, steps) == total


@given(rooflines, shapes(), st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_leap_is_its_two_halves(
    roofline: Roofline, shape: BatchShape, first: int, second: int
) -> None:
    later = advanced(shape, first)
    whole = roofline.time(shape, first + second)
    assert whole == roofline.time(shape, first) + roofline.time(later, second)
    assert whole > roofline.time(shape, first)


affine = st.tuples(st.integers(0, 200), st.integers(0, 20))


@given(affine, affine, st.integers(1, 50))
def test_the_larger_of_two_series_is_summed_exactly(
    a: tuple[int, int], b: tuple[int, int], count: int
) -> None:
    naive = sum(max(a[0] + a[1] * i, b[0] + b[1] * i) for i in range(count))
    assert larger_sum(*a, *b, count) == naive


@given(affine, st.integers(0, 300), st.integers(1, 50))
def test_a_clipped_series_is_summed_exactly(a: tuple[int, int], limit: int, count: int) -> None:
    assert clipped_sum(*a, limit, count) == sum(min(a[0] + a[1] * i, limit) for i in range(count))
    assert affine_sum(*a, count) == sum(a[0] + a[1] * i for i in range(count))


DENSE = ["llama-3-8b", "llama-3-70b", "qwen2.5-32b", "llama-2-13b"]


@given(st.sampled_from(DENSE), shapes(), st.booleans())
def test_no_step_is_faster_than_its_bytes_or_its_flops(
    name: str, shape: BatchShape, ideal: bool
) -> None:
    model, tensor = load_model(name), PLACES.get(name, 1)
    layout = KVLayout(model, tensor_parallel=tensor)
    perfect = Roofline(
        layout,
        H200,
        memory_efficiency=1,
        gemm_efficiency=1,
        attention_efficiency=1,
        layer_overhead=0,
        prompt_overhead=0,
        sequence_overhead=0,
        all_reduce_latency=0,
    )
    seconds = (perfect if ideal else Roofline(layout, H200)).time(shape) / 1e12
    tokens = shape.decodes + shape.prefill_tokens
    if not tokens:
        return
    matrices = model.parameters - model.embedding - model.head
    head = model.head if shape.sampled else 0
    read = shape.context_tokens + shape.prefill_context
    size = 2 * (matrices + head) + layout.bytes_per_token * (read + tokens)
    assert seconds >= size / tensor / H200.bandwidth
    attention = layout.model.layers[0].attention
    assert attention is not None
    pairs = shape.context_tokens + shape.prefill_pairs
    flops = 2 * matrices * tokens + 2 * model.head * shape.sampled
    flops += 4 * attention.heads * attention.head_dim * len(model.layers) * pairs
    assert seconds >= flops / tensor / H200.bf16_flops


@given(rooflines, shapes(), st.integers(1, 1000))
def test_more_context_never_takes_less_time(
    roofline: Roofline, shape: BatchShape, more: int
) -> None:
    if shape.decodes:
        longer = shape._replace(context_tokens=shape.context_tokens + more)
        assert roofline.time(longer) >= roofline.time(shape)


@given(rooflines, st.integers(1, 400), st.integers(1, 100_000))
def test_more_sequences_never_take_less_time(
    roofline: Roofline, decodes: int, context: int
) -> None:
    fewer = BatchShape(decodes, context, sampled=decodes)
    more = BatchShape(decodes + 1, context, sampled=decodes + 1)
    assert roofline.time(more) >= roofline.time(fewer)


@pytest.mark.parametrize(
    ("model", "base_ms", "slope_ns"),
    # Least squares on pure decode steps of vLLM 0.23 on one H200.
    [("llama-3-8b", 4.85, 33), ("qwen2.5-32b", 18.1, 61)],
)
def test_decode_steps_are_those_measured_on_an_h200(
    model: str, base_ms: float, slope_ns: float
) -> None:
    roofline = Roofline(KVLayout(load_model(model)), H200)
    one = roofline.time(BatchShape(1, 0, sampled=1))
    slope = roofline.time(BatchShape(1, 100_000, sampled=1)) - one
    assert one / 1e9 == pytest.approx(base_ms, rel=0.05)
    assert slope / 1e5 / 1e3 == pytest.approx(slope_ns, rel=0.1)


def test_a_chunk_of_2048_takes_about_50_ms_on_an_h200() -> None:
    roofline = Roofline(KVLayout(load_model("llama-3-8b")), H200)
    chunk = BatchShape(0, 0, 1, 2048, 0, 2048 * 2049 // 2, 1)
    assert roofline.time(chunk) / 1e9 == pytest.approx(51, rel=0.1)


def test_a_small_batch_reads_only_the_experts_it_chooses() -> None:
    model = load_model("deepseek-v3")
    roofline = ROOFLINES["deepseek-v3"]
    one, many = (roofline.time(BatchShape(n, 0, sampled=n)) for n in (1, 256))
    active, all_of_them = model.active_parameters, model.parameters
    assert many > 4 * one
    assert one / 1e12 < all_of_them / 8 / H200.bandwidth
    assert one / 1e12 > (active - model.embedding - model.head) / 8 / H200.bandwidth


def test_mla_decodes_are_not_priced_by_their_bytes_alone() -> None:
    layout = KVLayout(load_model("deepseek-v3"))
    roofline = Roofline(layout, H200)
    short, long = (roofline.time(BatchShape(1, n, sampled=1)) for n in (0, 10_000))
    # 128 heads, 2 * 576 + 2 * 512 multiply-adds per token and layer.
    flops = 61 * 2 * 128 * (576 + 512)
    assert (long - short) / 1e4 / 1e12 >= flops / H200.bf16_flops
    assert flops / H200.bf16_flops > layout.bytes_per_token / H200.bandwidth


def test_a_window_caps_the_cost_of_context() -> None:
    roofline = ROOFLINES["mistral-7b-v0.1"]
    full, beyond = (roofline.time(BatchShape(2, n, sampled=2)) for n in (8192, 90_000))
    assert full == beyond
    assert roofline.time(BatchShape(2, 8191, sampled=2)) < full


def test_sharding_a_model_makes_its_steps_faster_but_not_proportionally() -> None:
    model, shape = load_model("llama-3-70b"), BatchShape(64, 64_000, sampled=64)
    big = load_gpu("b200")
    times = [Roofline(KVLayout(model, tensor_parallel=n), big).time(shape) for n in (1, 2, 4, 8)]
    assert times == sorted(times, reverse=True)
    assert times[3] > times[0] / 8


def test_fp8_weights_and_cache_are_read_in_half_the_time() -> None:
    model = load_model("llama-3-8b")
    plain = Roofline(KVLayout(model), H200, layer_overhead=0)
    small = Roofline(KVLayout(model, "fp8"), H200, weight_dtype="fp8", layer_overhead=0)
    shape = BatchShape(8, 200_000, sampled=8)
    assert plain.time(shape) * 0.5 < small.time(shape) < plain.time(shape) * 0.56


def test_a_fixed_step_takes_what_it_is_told() -> None:
    fixed = Fixed(step_time=0.02)
    assert fixed.time(BatchShape(3, 99)) == picoseconds(0.02)
    assert fixed.time(BatchShape(3, 99), 7) == 7 * picoseconds(0.02)


@pytest.mark.parametrize("step_time", [0.0, -1.0, float("nan"), float("inf")])
def test_a_fixed_step_takes_some_time(step_time: float) -> None:
    with pytest.raises(ConfigError):
        Fixed(step_time=step_time)


@pytest.mark.parametrize(
    "options",
    [{"memory_efficiency": 1.1}, {"gemm_efficiency": 0.0}, {"layer_overhead": -1e-6}],
)
def test_no_efficiency_beats_the_peak(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Roofline(KVLayout(load_model("llama-3-8b")), H200, **options)


def test_a_gpu_without_a_known_link_cannot_share_a_layer() -> None:
    layout = KVLayout(load_model("llama-3-8b"), tensor_parallel=2)
    alone = replace(H200, link_bandwidth=None, pcie_bandwidth=None)
    with pytest.raises(ConfigError, match="no link bandwidth"):
        Roofline(layout, alone)


def test_every_cost_model_says_what_it_is() -> None:
    named = {"fixed": Fixed, "profile": Measured, "roofline": Roofline}
    assert named.items() <= COST_MODELS.items()
    assert (Fixed.label, Roofline.label) == ("fixed", "analytic")
