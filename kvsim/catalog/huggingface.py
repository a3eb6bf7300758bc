"""Read a Hugging Face ``config.json`` into a ModelSpec, without network or remote code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvsim.catalog.architectures import ARCHITECTURES
from kvsim.catalog.fields import Fields
from kvsim.catalog.model import ModelSpec
from kvsim.errors import ConfigError, unknown

LARGEST_FILE = 16_000_000
"""Bytes; the largest config known has 40 kB."""

DEFAULTS: dict[str, dict[str, int]] = {
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "sliding_window_pattern": 6,
        "max_position_embeddings": 131072,
    },
    "falcon_h1": {"intermediate_size": 14336, "vocab_size": 128000},
}
"""What the config class fills in, for models whose published files leave it out (transformers 5.24,
Gemma3TextConfig and FalconH1Config)."""

TIED = ("gemma", "gemma2", "gemma3_text", "gemma4_text", "cohere", "cohere2", "opt", "falcon")
"""Architectures whose head is the embedding unless the config says otherwise."""

DTYPES = {"bfloat16": "bfloat16", "float16": "float16", "float32": "float32"}


def read_config(path: Path) -> ModelSpec:
    """The model that a config.json describes; ConfigError naming file and field if it cannot be."""
    config = read_json(path)
    return model_from(config, where=str(path), name=config_name(path, config), source=str(path))


def model_from(
    config: Mapping[str, Any],
    *,
    where: str,
    name: str,
    source: str = "",
    date: str = "",
    verified: bool = False,
) -> ModelSpec:
    """The model that a config's content describes; text models may be nested in ``text_config``."""
    outer = Fields(where, config)
    inner = outer.table("text_config") if config.get("text_config") is not None else outer
    family = inner.text("model_type")
    if family is None:
        inner.fail("model_type", "the name of an architecture")
    if family not in ARCHITECTURES:
        raise ConfigError(f"{inner.where}: {unknown('model_type', family, ARCHITECTURES)}")
    fields = Fields(inner.where, {**DEFAULTS.get(family, {}), **inner.values})
    linear_dtype, expert_dtype = weight_dtypes(outer, fields)
    return ModelSpec(
        name=name,
        family=family,
        layers=tuple(ARCHITECTURES[family].layers(fields)),
        hidden=fields.count("hidden_size"),
        vocab=fields.count("vocab_size"),
        dtype=compute_dtype(outer, fields),
        max_positions=fields.maybe("max_position_embeddings", most=10**10),
        tied=tied(outer, fields, family),
        linear_dtype=linear_dtype,
        expert_dtype=expert_dtype,
        source=source,
        date=date,
        verified=verified,
    )


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    import json

    try:
        if path.stat().st_size > LARGEST_FILE:
            raise ConfigError(f"{path}: too large for a model config (over {LARGEST_FILE} bytes)")
        config = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the model config: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: expected a JSON object, found {type(config).__name__}")
    return config


def config_name(path: Path, config: Mapping[str, Any]) -> str:
    """What to call the model: its own name, else that of its file or folder."""
    stated = config.get("_name_or_path")
    if isinstance(stated, str) and stated:
        return stated
    return path.resolve().parent.name if path.name == "config.json" else path.stem


def compute_dtype(outer: Fields, fields: Fields) -> str:
    """The dtype of computation; bfloat16 if the config does not say."""
    name = fields.text("dtype", "torch_dtype") or outer.text("dtype", "torch_dtype") or "bfloat16"
    if name == "auto":
        return "bfloat16"
    if name not in DTYPES:
        fields.fail(fields.spelling("dtype", "torch_dtype"), f"one of {', '.join(DTYPES)}")
    return DTYPES[name]


def tied(outer: Fields, fields: Fields, family: str) -> bool:
    """Whether head and embedding share weights."""
    default = outer.flag("tie_word_embeddings", default=family in TIED)
    return fields.flag("tie_word_embeddings", default=default)


def weight_dtypes(outer: Fields, fields: Fields) -> tuple[str, str]:
    """Stored dtypes of linear layers and of routed experts, by ``quantization_config``.

    MXFP4 (gpt-oss) and compressed-tensors that ignore attention (Kimi) quantise the experts alone.
    """
    plain = compute_dtype(outer, fields)
    holder = fields if fields.get("quantization_config") is not None else outer
    if holder.get("quantization_config") is None:
        return plain, plain
    config = holder.table("quantization_config")
    method = config.text("quant_method")
    if method == "fp8":
        return "fp8", "mxfp4" if fields.text("expert_dtype") == "fp4" else "fp8"
    if method == "mxfp4":
        return plain, "mxfp4"
    if method == "compressed-tensors":
        return compressed_tensors_dtypes(config, plain)
    if method not in ("awq", "gptq", "auto-round"):
        config.fail("quant_method", "fp8, mxfp4, awq, gptq, auto-round or compressed-tensors")
    stored = integer_dtype(config, "bits")
    return stored, stored


def compressed_tensors_dtypes(config: Fields, plain: str) -> tuple[str, str]:
    """Dtypes by the first group of a compressed-tensors config and what it ignores."""
    groups = config.table("config_groups")
    weights = groups.table(next(iter(groups.values), "group_0")).table("weights")
    if weights.text("type") != "float":
        stored = integer_dtype(weights, "num_bits")
    elif weights.count("num_bits", least=4, most=8) == 4:
        stored = "nvfp4" if weights.maybe("group_size") == 16 else "mxfp4"
    else:
        stored = "fp8"
    ignored = config.items("ignore") if config.get("ignore") is not None else []
    spares_attention = any("self_attn" in str(name) for name in ignored)
    return (plain if spares_attention else stored), stored


def integer_dtype(fields: Fields, name: str) -> str:
    """int4 or int8, by a field that counts bits."""
    if fields.count(name) not in (4, 8):
        fields.fail(name, "4 or 8")
    return f"int{fields.count(name)}"
