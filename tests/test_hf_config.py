"""Hugging Face configs: every kind of attention is read as it is, or refused by file and field."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvsim.catalog import ModelSpec, load_model
from kvsim.catalog.architectures import ARCHITECTURES, MARKS
from kvsim.catalog.huggingface import model_from
from kvsim.errors import ConfigError
from kvsim.layout import KVLayout

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
LATENT = {
    **LLAMA,
    "model_type": "deepseek_v3",
    "kv_lora_rank": 64,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "q_lora_rank": None,
}
MIXTURE = {
    **LLAMA,
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
}

Load = Callable[[dict[str, Any]], ModelSpec]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a config and read it as a user would name it."""

    def read(config: dict[str, Any]) -> ModelSpec:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        return load_model(str(path))

    return read


def kinds(model: ModelSpec) -> list[str]:
    return [layer.attention.kind if layer.attention else "-" for layer in model.layers]


def test_all_real_configs_have_their_published_sizes(shared: Path) -> None:
    with (shared / "facts" / "models.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    rows = {row["raw_config"]: row for row in table}
    # This one has no row of its own: its dimensions are those of Mistral-Small-24B.
    twin = next(row for row in table if "Mistral-Small-24B" in row["model_id"])
    rows["mistralai__Devstral-Small-2-24B-Instruct.json"] = twin
    configs = sorted((shared / "facts" / "hf_configs").glob("*.json"))
    wrong = {}
    for path in configs:
        layout, row = KVLayout(load_model(str(path)), "bf16"), rows[path.name]
        seen = [
            layout.bytes_per_token,
            layout.short_bytes_per_token,
            layout.window_bytes_per_sequence,
            layout.whole.state,
            layout.index_bytes_per_token // 132 * 128,
        ]
        expected = [
            float(row["kv_bytes_per_token_bf16"]),
            float(row["kv_bytes_per_token_short_seq_bf16"]),
            float(row["window_kv_cap_bytes_per_seq_bf16"]),
            float(row["recurrent_state_bytes_per_seq_bf16"]),
            float(row["indexer_elems_per_token"] or 0),
        ]
        if seen != expected:
            wrong[path.name] = (seen, expected)
    assert len(configs) == 62
    assert not wrong


def test_the_catalog_agrees_with_the_real_configs(shared: Path) -> None:
    with (shared / "facts" / "models.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["verified"] == "yes (config.json)"]
    for row in rows:
        path = shared / "facts" / "hf_configs" / row["raw_config"]
        real, known = load_model(str(path)), load_model(row["model_id"])
        assert known.layers == real.layers
        assert (known.linear_dtype, known.expert_dtype) == (real.linear_dtype, real.expert_dtype)


def test_head_dim_need_not_be_hidden_over_heads(load: Load) -> None:
    assert KVLayout(load(LLAMA)).bytes_per_token == 4 * 2 * 2 * 64 * 2
    assert KVLayout(load({**LLAMA, "head_dim": 128})).bytes_per_token == 4 * 2 * 2 * 128 * 2


def test_a_text_model_may_be_nested(load: Load) -> None:
    nested = {"model_type": "some_vision_model", "text_config": LLAMA, "dtype": "float16"}
    assert load(nested).layers == load(LLAMA).layers


def test_mla_keeps_latent_and_rope_key(load: Load) -> None:
    assert KVLayout(load(LATENT)).bytes_per_token == 4 * (64 + 16) * 2


def test_windows_can_be_switched_off(load: Load) -> None:
    qwen = {**LLAMA, "model_type": "qwen2", "sliding_window": 64, "max_window_layers": 2}
    assert kinds(load(qwen)) == ["full"] * 4
    assert kinds(load({**qwen, "use_sliding_window": False})) == ["full"] * 4
    assert kinds(load({**qwen, "use_sliding_window": True})) == ["full"] * 2 + ["window"] * 2


def test_a_window_as_long_as_the_context_is_none(load: Load) -> None:
    mistral = {**LLAMA, "model_type": "mistral", "sliding_window": 4096}
    assert kinds(load(mistral)) == ["full"] * 4
    assert kinds(load({**mistral, "sliding_window": 4095})) == ["window"] * 4
    assert kinds(load({**mistral, "sliding_window": None})) == ["full"] * 4


def test_layer_types_win_over_the_architecture(load: Load) -> None:
    types = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]
    config = {**LLAMA, "model_type": "gemma2", "sliding_window": 64}
    assert kinds(load(config)) == ["window", "full", "window", "full"]
    assert kinds(load({**config, "layer_types": types})) == ["window", "full", "full", "window"]


def test_a_pattern_counts_windows_up_to_a_full_layer(load: Load) -> None:
    config = {
        **LLAMA,
        "model_type": "gemma3_text",
        "head_dim": 64,
        "sliding_window": 64,
        "sliding_window_pattern": 2,
    }
    assert kinds(load(config)) == ["window", "full"] * 2


def test_a_published_gemma_3_file_leaves_much_to_its_class(load: Load) -> None:
    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    model = load({"model_type": "gemma3", "text_config": text, "torch_dtype": "bfloat16"})
    assert model.layers == load_model("google/gemma-3-4b-it").layers
    assert model.tied


def test_local_chunks_of_llama_4_follow_no_rope_layers(load: Load) -> None:
    config = {**LLAMA, "model_type": "llama4_text", "attention_chunk_size": 128}
    config["intermediate_size_mlp"] = 2048
    assert kinds(load(config)) == ["chunked"] * 3 + ["full"]
    assert kinds(load({**config, "no_rope_layers": [0, 1, 0, 1]})) == ["full", "chunked"] * 2


@pytest.mark.parametrize(
    "spelling",
    [
        {"num_experts": 8, "num_experts_per_tok": 2},
        {"n_routed_experts": 8, "num_experts_per_tok": 2},
        {"num_local_experts": 8, "experts_per_token": 2},
    ],
)
def test_experts_have_many_spellings(load: Load, spelling: dict[str, int]) -> None:
    model = load({**LLAMA, "model_type": "mixtral", **spelling})
    mlp = model.layers[0].mlp
    assert mlp is not None
    assert (mlp.experts, mlp.top_k, mlp.expert) == (8, 2, 3 * 512 * 1024)


def test_the_first_layers_may_be_dense(load: Load) -> None:
    moe = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
    model = load({**LATENT, **moe, "first_k_dense_replace": 1, "n_shared_experts": 1})
    routed = [layer.mlp.experts for layer in model.layers if layer.mlp]
    assert routed == [0, 8, 8, 8]


@pytest.mark.parametrize(
    ("fields", "routed"),
    [
        ({"decoder_sparse_step": 2}, [False, True, False, True]),
        ({"decoder_sparse_step": 1, "mlp_only_layers": [2]}, [True, True, False, True]),
        ({"expert_layer_period": 2, "expert_layer_offset": 0}, [True, False, True, False]),
        ({"moe_layer_freq": [0, 1, 1, 0]}, [False, True, True, False]),
        ({"moe_layer_freq": 2}, [True, False, True, False]),
    ],
)
def test_experts_may_alternate_with_dense_layers(
    load: Load, fields: dict[str, Any], routed: list[bool]
) -> None:
    model = load({**MIXTURE, **fields})
    assert [bool(layer.mlp and layer.mlp.experts) for layer in model.layers] == routed


@pytest.mark.parametrize(
    ("quantization", "dtypes"),
    [
        ({"quant_method": "fp8"}, ("fp8", "fp8")),
        ({"quant_method": "mxfp4"}, ("bfloat16", "mxfp4")),
        ({"quant_method": "awq", "bits": 4}, ("int4", "int4")),
        (None, ("bfloat16", "bfloat16")),
    ],
)
def test_released_weights_may_be_quantised(
    load: Load, quantization: dict[str, Any] | None, dtypes: tuple[str, str]
) -> None:
    model = load({**LLAMA, "quantization_config": quantization})
    assert (model.linear_dtype, model.expert_dtype) == dtypes


OPTIONAL = ("torch_dtype", "max_position_embeddings")


@pytest.mark.parametrize("field", [name for name in LLAMA if name not in OPTIONAL])
def test_a_missing_field_is_named_with_its_file(load: Load, field: str) -> None:
    config = {name: value for name, value in LLAMA.items() if name != field}
    with pytest.raises(ConfigError, match=rf"config\.json: {field}: expected .*found missing"):
        load(config)


@pytest.mark.parametrize(
    "field",
    [
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
    ],
)
@pytest.mark.parametrize(
    "value", [-1, 0, 10**30, 1.5, float("nan"), float("inf"), "32", True, [4], {}, None]
)
def test_a_dimension_is_a_whole_number_in_range(load: Load, field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"config\.json: {field}: expected"):
        load({**LLAMA, field: value})


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({**LLAMA, "num_key_value_heads": 3}, "num_key_value_heads"),
        ({**LLAMA, "num_key_value_heads": 16}, "num_key_value_heads"),
        ({**LLAMA, "hidden_size": 500}, "hidden_size"),
        ({**LLAMA, "torch_dtype": "int3"}, "torch_dtype"),
        ({**LLAMA, "layer_types": ["full_attention"] * 3}, "layer_types"),
        ({**LLAMA, "layer_types": ["full_attention"] * 3 + ["hyper_attention"]}, "layer_types"),
        ({**LLAMA, "layer_types": ["full_attention"] * 3 + [7]}, "layer_types"),
        ({**LLAMA, "layer_types": ["linear_attention"] * 4}, "layer_types"),
        ({**LLAMA, "layer_types": ["sliding_attention"] * 4}, "sliding_window"),
        ({**LLAMA, "kv_lora_rank": 64}, "kv_lora_rank"),
        ({**LLAMA, "sliding_window": 64}, "sliding_window"),
        ({**LLAMA, "text_config": 5}, "text_config"),
        ({**LLAMA, "tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ({**LLAMA, "quantization_config": {"quant_method": "magic"}}, "quant_method"),
        ({**LATENT, "kv_lora_rank": None}, "kv_lora_rank"),
        ({**LATENT, "model_type": "deepseek_v32"}, "index_n_heads"),
        ({**MIXTURE, "num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({**MIXTURE, "num_experts_per_tok": None}, "num_experts_per_tok"),
        ({**LLAMA, "model_type": "gemma2"}, "sliding_window"),
        ({**LLAMA, "model_type": "gpt_oss"}, "layer_types"),
        ({**LLAMA, "model_type": "jamba"}, "attn_layer_period"),
        ({**LLAMA, "model_type": "qwen3_next"}, "full_attention_interval"),
        ({**LLAMA, "model_type": "nemotron_h"}, "hybrid_override_pattern"),
        ({**LLAMA, "model_type": "nemotron-nas", "block_configs": [1, 2, 3, 4]}, "block"),
        ({**LLAMA, "model_type": "deepseek_v4", "compress_ratios": [3] * 4}, "compress_ratios"),
        ({**LLAMA, "model_type": "kimi_linear"}, "linear_attn_config"),
    ],
)
def test_what_does_not_fit_together_is_named(
    load: Load, config: dict[str, Any], field: str
) -> None:
    with pytest.raises(ConfigError, match=rf"config\.json.*: {field}"):
        load(config)


@pytest.mark.parametrize("mark", [mark for mark in MARKS if mark != "layer_types"])
def test_a_kind_of_attention_that_an_architecture_does_not_have_is_never_ignored(
    load: Load, mark: str
) -> None:
    with pytest.raises(ConfigError, match=rf"{mark}: expected no such field in model_type llama"):
        load({**LLAMA, mark: 8})


def test_an_unknown_architecture_is_refused_and_the_nearest_suggested(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"unknown model_type 'lama'; did you mean 'llama'"):
        load({**LLAMA, "model_type": "lama"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        "null",
        "7",
        '"llama"',
        "\x00\x01",
        "[" * 100_000,
        '{"model_type": 3}',
        '{"num_hidden_layers": ' + "9" * 5000 + "}",
    ],
)
def test_what_is_no_config_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"broken\.json") as error:
        load_model(str(path))
    assert len(str(error.value).splitlines()) == 1
    assert len(str(error.value)) < 500


def test_a_byte_order_mark_is_no_reason_to_refuse(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(LLAMA).encode())
    assert load_model(str(path)).vocab == 1000


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b'{"model_type": "\xff\xfe"}')
    with pytest.raises(ConfigError, match=r"config\.json: not valid JSON"):
        load_model(str(path))


def test_a_folder_stands_for_the_config_in_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config\.json"):
        load_model(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert load_model(str(tmp_path)).name == tmp_path.name
    with pytest.raises(ConfigError, match="cannot read"):
        load_model(str(tmp_path / "other.json"))


WILD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.integers(0, 300),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(-1, 5), max_size=6),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
BASES = st.sampled_from([LLAMA, LATENT, MIXTURE])
FIELDS = st.sampled_from(sorted({*LLAMA, *LATENT, *MIXTURE, *MARKS, "quantization_config"}))
TYPES = st.sampled_from(sorted(ARCHITECTURES))


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(BASES, TYPES, st.dictionaries(FIELDS, WILD, max_size=3))
def test_any_config_is_a_model_or_a_config_error(
    base: dict[str, Any], family: str, changes: dict[str, Any]
) -> None:
    config = {**base, "model_type": family, **changes}
    try:
        model = model_from(config, where="config.json", name="any")
    except ConfigError:
        return
    assert len(model.layers) == config["num_hidden_layers"]
    assert model.parameters > 0
    assert KVLayout(model).bytes_per_sequence(1) >= 0
