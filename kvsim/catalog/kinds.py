"""Which layers of a Hugging Face config attend to everything, to a window, or recur."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from kvsim.catalog.fields import Fields

Kind = Literal["full", "window", "chunked", "linear"]
Rule = Callable[[Fields, int], list[Kind]]

LAYER_TYPES: dict[str, Kind] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "window",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "mamba": "linear",
}


def all_full(fields: Fields, layers: int) -> list[Kind]:
    """Every layer attends to everything."""
    return ["full"] * layers


def all_window(fields: Fields, layers: int) -> list[Kind]:
    """Every layer has the window, if the config states one (Mistral, Phi-3)."""
    return [window_kind(fields)] * layers


def upper_window(fields: Fields, layers: int) -> list[Kind]:
    """Layers from ``max_window_layers`` on, if ``use_sliding_window`` (Qwen2, Qwen3)."""
    if not fields.flag("use_sliding_window", default=False):
        return ["full"] * layers
    first = fields.count("max_window_layers", least=0)
    kind = window_kind(fields)
    return [kind if layer >= first else "full" for layer in range(layers)]


def alternating(fields: Fields, layers: int) -> list[Kind]:
    """A window in even layers (Gemma-2)."""
    fields.count("sliding_window")
    kind = window_kind(fields)
    return [kind if layer % 2 == 0 else "full" for layer in range(layers)]


def patterned(fields: Fields, layers: int) -> list[Kind]:
    """One full layer after every ``sliding_window_pattern - 1`` window layers (Gemma-3, Cohere-2)."""
    every = fields.count("sliding_window_pattern", "_sliding_window_pattern")
    fields.count("sliding_window")
    kind = window_kind(fields)
    return ["full" if (layer + 1) % every == 0 else kind for layer in range(layers)]


def interleaved_chunks(fields: Fields, layers: int) -> list[Kind]:
    """Chunked-local layers with rotary positions, global layers without (Llama-4).

    ``no_rope_layers`` marks the local layers with 1; without it every fourth layer is global, the
    default ``no_rope_layer_interval`` of the config class.
    """
    if fields.get("no_rope_layers"):
        marks = fields.numbers("no_rope_layers", length=layers, most=1)
        return ["chunked" if mark else "full" for mark in marks]
    every = fields.maybe("no_rope_layer_interval") or 4
    return ["full" if (layer + 1) % every == 0 else "chunked" for layer in range(layers)]


def interval_linear(fields: Fields, layers: int) -> list[Kind]:
    """One full layer after every ``full_attention_interval - 1`` linear ones (Qwen3-Next)."""
    every = fields.count("full_attention_interval")
    return ["full" if (layer + 1) % every == 0 else "linear" for layer in range(layers)]


def periodic_attention(fields: Fields, layers: int) -> list[Kind]:
    """Attention every ``attn_layer_period`` layers, a recurrence elsewhere (Jamba)."""
    period = fields.count("attn_layer_period")
    offset = fields.count("attn_layer_offset", least=0, most=period - 1)
    return ["full" if layer % period == offset else "linear" for layer in range(layers)]


def listed_attention(fields: Fields, layers: int) -> list[Kind]:
    """Attention in the layers of ``attn_layer_indices``, a recurrence elsewhere (Bamba)."""
    full = set(fields.numbers("attn_layer_indices", most=layers - 1))
    return ["full" if layer in full else "linear" for layer in range(layers)]


def typed_attention(fields: Fields, layers: int) -> list[Kind]:
    """Softmax attention where ``attn_type_list`` has 1, linear where 0 (MiniMax-Text-01)."""
    types = fields.numbers("attn_type_list", length=layers, most=1)
    return ["full" if kind else "linear" for kind in types]


def numbered_linear(fields: Fields, layers: int) -> list[Kind]:
    """``linear_attn_config`` lists both sorts of layers, counted from 1 (Kimi Linear)."""
    config = fields.table("linear_attn_config")
    full = set(config.numbers("full_attn_layers", least=1, most=layers))
    linear = set(config.numbers("kda_layers", least=1, most=layers))
    if full & linear or len(full | linear) != layers:
        config.fail("kda_layers", f"with full_attn_layers every layer from 1 to {layers} once")
    return ["full" if layer in full else "linear" for layer in range(1, layers + 1)]


def hybrid_windows(fields: Fields, layers: int) -> list[Kind]:
    """A window where ``hybrid_layer_pattern`` has 1 (MiMo-V2)."""
    marks = fields.numbers("hybrid_layer_pattern", length=layers, most=1)
    return ["window" if mark else "full" for mark in marks]


def stated(fields: Fields, layers: int) -> list[Kind]:
    """The config's own ``layer_types``."""
    kinds: list[Kind] = []
    for name in fields.items("layer_types", layers):
        if not isinstance(name, str) or name not in LAYER_TYPES:
            fields.fail("layer_types", f"entries among {', '.join(LAYER_TYPES)}")
        kinds.append(LAYER_TYPES[name])
    if "window" in kinds:
        fields.count("sliding_window")
        kinds = [window_kind(fields) if kind == "window" else kind for kind in kinds]
    return kinds


def window_kind(fields: Fields) -> Kind:
    """Window layers of a window as long as the context, or of none, are full layers."""
    window = fields.maybe("sliding_window")
    positions = fields.maybe("max_position_embeddings")
    if window is None or (positions is not None and window >= positions):
        return "full"
    return "window"
