"""KV sizes against published figures, and the laws of shards and sequences."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.catalog import load_gpu, load_model, model_names
from kvsim.catalog.formats import FORMATS
from kvsim.errors import CapacityError, ConfigError
from kvsim.layout import KVLayout, indivisible, pipeline_stages
from kvsim.sizing import Limits, plan_memory

GIB = 2**30
models = st.sampled_from(model_names()).map(load_model)


@pytest.mark.parametrize(
    ("model", "size"),
    [
        # DeepSeek-V3 hardware paper (ISCA 2025) Table 1.
        ("deepseek-v3", 70_272),
        ("qwen2.5-72b", 327_680),
        ("llama-3.1-405b", 516_096),
        # PagedAttention (SOSP 2023) section 3: 800 KB.
        ("opt-13b", 800 * 1024),
        # Mooncake (FAST 2025) section 5.3: 320 KB.
        ("llama-3-70b", 320 * 1024),
        # vAttention (ASPLOS 2025) section 4: 64, 128 and 240 KB.
        ("yi-6b", 64 * 1024),
        ("llama-3-8b", 128 * 1024),
        ("yi-34b", 240 * 1024),
        ("llama-65b", 2_621_440),
    ],
)
def test_bytes_per_token_are_the_published_ones(model: str, size: int) -> None:
    assert KVLayout(load_model(model)).bytes_per_token == size


@pytest.mark.parametrize(
    ("model", "gib"),
    [
        ("mistral-7b", 32),
        ("mixtral-8x7b", 32),
        ("llama-3.1-8b", 32),
        ("mixtral-8x22b", 56),
        ("mistral-large", 88),
        ("llama-3.1-70b", 80),
        ("llama-2-7b", 128),
        # The table prints 252, which would take 16 KV heads; the model has 8.
        ("llama-3.1-405b", 126),
    ],
)
def test_a_quarter_million_tokens_take_what_the_jamba_papers_say(model: str, gib: int) -> None:
    assert KVLayout(load_model(model)).bytes_per_sequence(256 * 1024) == gib * GIB


@pytest.mark.parametrize(("model", "gib"), [("jamba-1.5-mini", 4), ("jamba-1.5-large", 9)])
def test_jamba_grows_by_its_few_attention_layers_alone(model: str, gib: int) -> None:
    layout = KVLayout(load_model(model))
    growing = layout.bytes_per_sequence(256 * 1024) - layout.whole.state
    assert growing == gib * GIB


def test_128k_tokens_of_llama_3_70b_take_40_gib() -> None:
    assert KVLayout(load_model("llama-3-70b")).bytes_per_sequence(128 * 1024) == 40 * GIB


def test_deepseek_v2_saves_82_percent_and_93_only_at_six_bits() -> None:
    dense = KVLayout(load_model("deepseek-67b")).bytes_per_token
    latent = KVLayout(load_model("deepseek-v2")).bytes_per_token
    assert round(100 * (1 - latent / dense), 1) == 82.2
    assert round(100 * (1 - latent * 6 / 16 / dense), 1) == 93.3


@pytest.mark.parametrize(
    ("dtype", "share"),
    [
        ("fp8", Fraction(1, 2)),
        ("fp8_e5m2", Fraction(1, 2)),
        ("nvfp4", Fraction(9, 32)),
        ("int4", Fraction(17, 64)),
        ("int8", Fraction(132, 256)),
        ("k:fp8,v:int4", Fraction(128 + 68, 512)),
        ("fp16", Fraction(1)),
    ],
)
def test_a_dtype_takes_its_bits_and_its_scales(dtype: str, share: Fraction) -> None:
    model = load_model("llama-3-8b")
    full = KVLayout(model, "bf16").bytes_per_token
    assert Fraction(KVLayout(model, dtype).bytes_per_token, full) == share


def test_int4_groups_of_64_take_more_than_groups_of_128() -> None:
    assert FORMATS["int4"].row_bytes(1, 64) / 128 == pytest.approx(0.28125)
    assert FORMATS["int4"].row_bytes(1, 256) / 512 == pytest.approx(0.265625)


def test_the_layout_of_the_mla_kernels_takes_656_bytes_a_token_and_layer() -> None:
    layout = KVLayout(load_model("deepseek-v3"), "fp8_ds_mla")
    assert layout.bytes_per_token == 61 * 656
    with pytest.raises(ConfigError, match="fp8_ds_mla"):
        KVLayout(load_model("llama-3-8b"), "fp8_ds_mla")


def test_deepseek_v4_in_fp8_takes_5_and_a_half_kilobytes() -> None:
    layout = KVLayout(load_model("deepseek-v4-pro"), "fp8_ds_mla")
    assert layout.bytes_per_token == 5512


def test_one_vector_cannot_have_two_dtypes() -> None:
    with pytest.raises(ConfigError, match="one dtype"):
        KVLayout(load_model("deepseek-v3"), "k:fp8,v:int4")


@pytest.mark.parametrize("dtype", ["fp7", "k:fp8", "k:fp8,k:int4", "k:fp8,v:", ""])
def test_an_unknown_dtype_is_refused_with_those_that_are_known(dtype: str) -> None:
    with pytest.raises(ConfigError, match="kv cache dtype"):
        KVLayout(load_model("llama-3-8b"), dtype)


def test_the_index_of_sparse_attention_is_kept_beside_the_cache() -> None:
    layout = KVLayout(load_model("deepseek-v3.2"))
    assert layout.bytes_per_token == 70_272
    assert layout.index_bytes_per_token == 61 * 132
    assert layout.slot_bytes == 70_272 + 61 * 132


@pytest.mark.parametrize(
    ("model", "mib"), [("jamba-1.5-mini", 8.3125), ("qwen3-next-80b-a3b", 73.6875)]
)
def test_recurrent_state_is_the_published_constant(model: str, mib: float) -> None:
    state = "bf16" if model.startswith("jamba") else "fp32"
    layout = KVLayout(load_model(model), state_dtype=state)
    assert layout.fixed_bytes_per_sequence == mib * 2**20


def test_the_state_of_qwen3_next_costs_as_much_as_3144_tokens() -> None:
    layout = KVLayout(load_model("qwen3-next-80b-a3b"), state_dtype="fp32")
    assert layout.fixed_slots() == 3144


def test_a_model_of_windows_alone_does_not_grow() -> None:
    layout = KVLayout(load_model("mistral-7b-v0.1"))
    assert layout.bytes_per_token == 0
    assert layout.slot_bytes == layout.short_bytes_per_token == 131_072
    assert layout.fixed_slots() == 0
    assert layout.bytes_per_sequence(10**6) == layout.bytes_per_sequence(4096) == 4096 * 131_072


def test_layouts_are_equal_if_made_of_the_same_and_only_then() -> None:
    made = {"model": load_model("jamba-1.5-mini"), "dtype": "auto", "state_dtype": "bf16"}
    same = KVLayout(**made)
    assert {KVLayout(**made), same} == {same}
    for other in (
        {"model": load_model("llama-3-8b")},
        {"dtype": "fp8"},
        {"tensor_parallel": 2},
        {"pipeline_parallel": 2},
        {"state_dtype": "fp32"},
    ):
        assert KVLayout(**{**made, **other}) != same, other


def test_kv_heads_are_sharded_and_then_replicated() -> None:
    model = load_model("llama-3-70b")
    per_gpu = [KVLayout(model, tensor_parallel=n).gpu_bytes_per_token for n in (1, 2, 8, 16, 64)]
    assert per_gpu == [327_680, 163_840, 40_960, 40_960, 40_960]


def test_a_latent_is_on_every_gpu() -> None:
    model = load_model("deepseek-v3")
    assert KVLayout(model, tensor_parallel=8).gpu_bytes_per_token == 70_272


def test_pipeline_stages_share_the_layers_and_the_largest_counts() -> None:
    layout = KVLayout(load_model("llama-3.1-405b"), pipeline_parallel=4)
    assert [len(stage) for stage in pipeline_stages(layout.model.layers, 4)] == [31, 32, 32, 31]
    assert layout.gpu_bytes_per_token == 32 * 4096


@pytest.mark.parametrize(("tensor", "pipeline"), [(3, 1), (0, 1), (1, 33), (-1, 1), (64, 1)])
def test_a_split_that_does_not_divide_the_heads_is_refused(tensor: int, pipeline: int) -> None:
    with pytest.raises(ConfigError, match="parallel size"):
        KVLayout(load_model("llama-3-8b"), "auto", tensor, pipeline)


@given(models, st.integers(0, 10**6))
def test_a_sequence_grows_by_its_tokens_until_windows_are_full(model, tokens: int) -> None:
    layout = KVLayout(model)
    grown = layout.bytes_per_sequence(tokens + 1) - layout.bytes_per_sequence(tokens)
    assert layout.bytes_per_token <= grown <= layout.short_bytes_per_token
    full = layout.bytes_per_token * tokens + layout.fixed_bytes_per_sequence
    assert layout.bytes_per_sequence(tokens) <= full
    widest = max((window for window, _ in layout.whole.windows), default=0)
    if tokens >= widest:
        assert layout.bytes_per_sequence(tokens) == full
    if all(tokens <= window for window, _ in layout.whole.windows):
        short = ceil(layout.whole.short * tokens) + layout.whole.state
        assert layout.bytes_per_sequence(tokens) == short


@given(models, st.sampled_from([1, 2, 4, 8]), st.integers(1, 5), st.integers(1, 10**5))
def test_the_shards_together_hold_at_least_the_whole(
    model, tensor: int, pipeline: int, tokens: int
) -> None:
    if indivisible(model, tensor):
        return
    layout = KVLayout(model, "auto", tensor, pipeline)
    held = sum(stage.sequence(tokens) for stage in layout.stages) * tensor
    whole = layout.whole.sequence(tokens)
    assert held >= whole
    if tensor == 1:
        assert held == whole
    assert layout.gpu_bytes_per_sequence(tokens) * tensor * pipeline >= whole


@given(models, st.integers(1, 10**6))
def test_slots_never_charge_less_than_the_bytes(model, tokens: int) -> None:
    layout = KVLayout(model)
    slots = tokens + layout.fixed_slots(tokens)
    assert (
        slots * layout.slot >= layout.gpu_bytes_per_sequence(tokens) or not layout.bytes_per_token
    )


@pytest.mark.parametrize(
    ("model", "dtype", "batched", "measured"),
    [
        ("llama-3-8b", "auto", 2048, 57_537),
        ("qwen2.5-32b", "auto", 2048, 16_721),
        ("deepseek-v2-lite", "auto", 2048, 211_326),
        ("llama-3-8b", "fp8", 8192, 114_978),
    ],
)
def test_blocks_are_those_of_vllm_on_an_h200(
    model: str, dtype: str, batched: int, measured: int
) -> None:
    limits = Limits(max_num_batched_tokens=batched)
    plan = plan_memory(KVLayout(load_model(model), dtype), load_gpu("h200"), limits)
    assert plan.num_gpu_blocks == pytest.approx(measured, rel=0.005)


def test_eight_a100_80gb_hold_1_33_million_tokens_of_llama_3_70b() -> None:
    layout = KVLayout(load_model("llama-3-70b"), tensor_parallel=8)
    plan = plan_memory(layout, load_gpu("a100-80gb"), Limits(gpu_memory_utilization=0.9))
    assert plan.kv_tokens_capacity == pytest.approx(1.33e6, rel=0.01)


@given(
    models,
    st.sampled_from(["h200", "a100-80gb", "b200", "l40s"]),
    st.integers(1, 8),
    st.integers(1, 64),
)
def test_the_waterfall_sums_to_the_memory(model, gpu: str, power: int, block: int) -> None:
    if indivisible(model, 2**power):
        return
    layout = KVLayout(model, tensor_parallel=2**power)
    try:
        plan = plan_memory(layout, load_gpu(gpu), Limits(block_size=block))
    except CapacityError:
        return
    assert sum(plan.waterfall.values()) == load_gpu(gpu).memory_bytes
    assert min(plan.waterfall.values()) >= 0
    assert 0 <= plan.kv_pool - plan.num_gpu_blocks * plan.block_bytes < plan.block_bytes


@pytest.mark.parametrize(
    ("model", "gpu", "smallest"),
    [("llama-3-70b", "h100", 2), ("deepseek-v3", "h200", 8), ("llama-3.1-405b", "h200", 8)],
)
def test_what_does_not_fit_is_told_the_smallest_split_that_does(
    model: str, gpu: str, smallest: int
) -> None:
    spec, card = load_model(model), load_gpu(gpu)
    with pytest.raises(CapacityError, match=f"smallest .* that fits is {smallest}$"):
        plan_memory(KVLayout(spec, tensor_parallel=smallest // 2), card)
    assert plan_memory(KVLayout(spec, tensor_parallel=smallest), card).num_gpu_blocks > 0


def test_weights_have_the_size_of_the_release() -> None:
    plain = load_gpu("h200")
    huge = replace(plain, memory_bytes=10**13)
    plan = plan_memory(KVLayout(load_model("gpt-oss-120b")), huge)
    assert plan.weights == pytest.approx(65.2e9, rel=0.01)  # 60.8 GiB of MXFP4 safetensors
    bf16 = plan_memory(KVLayout(load_model("llama-3-8b")), plain).weights
    fp8 = plan_memory(KVLayout(load_model("llama-3-8b")), plain, Limits(weight_dtype="fp8")).weights
    assert bf16 == 2 * load_model("llama-3-8b").parameters
    assert bf16 / 2 < fp8 < bf16 * 0.6


def test_a_tied_head_is_stored_once_unless_the_stages_are_apart() -> None:
    model, card = load_model("llama-3.2-1b"), load_gpu("l4")
    one = plan_memory(KVLayout(model), card).weights
    assert one == 2 * model.parameters
    # The last stage has half the layers and a copy of the embedding as its head.
    two = plan_memory(KVLayout(model, pipeline_parallel=2), card).weights
    assert two == 2 * (model.embedding + (model.parameters - model.embedding) // 2)


def test_concurrency_counts_whole_blocks() -> None:
    plan = plan_memory(KVLayout(load_model("llama-3-8b")), load_gpu("h200"))
    assert plan.max_concurrency(16) == plan.num_gpu_blocks
    assert plan.max_concurrency(17) == plan.num_gpu_blocks / 2


@pytest.mark.parametrize(
    "limits",
    [
        {"gpu_memory_utilization": 0.0},
        {"gpu_memory_utilization": 1.01},
        {"gpu_memory_utilization": float("nan")},
        {"block_size": 0},
        {"max_num_seqs": -1},
        {"weight_dtype": "fp7"},
    ],
)
def test_limits_out_of_range_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Limits(**limits)
