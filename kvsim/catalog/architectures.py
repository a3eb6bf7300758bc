"""The architectures that a Hugging Face config can name, and how each describes its layers.

An architecture says which layers attend to what, how attention and recurrence read their dimensions,
and which of the *marks* (fields that change what is kept per token) it understands. A mark that the
architecture does not understand is an error: a config is never read as something simpler than it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvsim.catalog import kinds, mixers, special
from kvsim.catalog.fields import Fields
from kvsim.catalog.kinds import Kind, Rule
from kvsim.catalog.mlps import mlps
from kvsim.catalog.model import Attention, Layer, Recurrent

MARKS = (
    "kv_lora_rank",
    "sliding_window",
    "layer_types",
    "attention_chunk_size",
    "hybrid_override_pattern",
    "hybrid_layer_pattern",
    "attn_layer_period",
    "attn_layer_indices",
    "attn_type_list",
    "linear_attn_config",
    "full_attention_interval",
    "block_configs",
    "compress_ratios",
    "index_topk",
    "mamba_d_state",
    "ssm_state_size",
    "global_head_dim",
    "attention_k_eq_v",
    "num_kv_shared_layers",
    "cross_attention_layers",
    "sparse_attention_config",
    "attention_type",
    "attn_type",
)


@dataclass(frozen=True, slots=True)
class Architecture:
    """How one ``model_type`` is read."""

    marks: tuple[str, ...] = ()
    rule: Rule = kinds.all_full
    attention: Callable[[Fields, Kind], Attention] = mixers.grouped_attention
    recurrence: Callable[[Fields], Recurrent] | None = None
    side_by_side: bool = False
    """Attention layers recur as well (Falcon-H1)."""
    matrices: int = 3
    """Weight matrices of an MLP: 3 gated, 2 plain."""
    dense_width: str = ""
    """Field of the dense MLPs' width where it is not ``intermediate_size``."""
    build: Callable[[Fields, int], list[Layer]] | None = None
    """Builds all layers, for configs that fit no pattern."""

    def layers(self, fields: Fields) -> list[Layer]:
        """All layers, in order."""
        self.refuse_unknown_marks(fields)
        count = fields.count("num_hidden_layers", "n_layer", "n_layers", most=10_000)
        if self.build is not None:
            return self.build(fields, count)
        rule = kinds.stated if fields.get("layer_types") is not None else self.rule
        sequence = rule(fields, count)
        mixed = {kind: self.mixer(fields, kind) for kind in dict.fromkeys(sequence)}
        feed_forward = mlps(fields, count, matrices=self.matrices, dense_width=self.dense_width)
        made = [Layer(*mixed[kind], mlp) for kind, mlp in zip(sequence, feed_forward, strict=True)]
        return list(map({layer: layer for layer in made}.__getitem__, made))

    def mixer(self, fields: Fields, kind: Kind) -> tuple[Attention | None, Recurrent | None]:
        """What mixes the tokens in a layer of this kind."""
        recurrence = self.recurrence
        if kind == "linear":
            if recurrence is None:
                fields.fail("layer_types", f"no linear layers in {fields.text('model_type')}")
            return None, recurrence(fields)
        beside = recurrence(fields) if recurrence is not None and self.side_by_side else None
        return self.attention(fields, kind), beside

    def refuse_unknown_marks(self, fields: Fields) -> None:
        """Raise a ConfigError for a mark that this architecture does not understand."""
        for mark in MARKS:
            if mark not in self.marks and fields.get(mark):
                fields.fail(mark, f"no such field in model_type {fields.text('model_type')}")


PLAIN = Architecture(marks=("layer_types",))
WINDOWED = Architecture(marks=("sliding_window", "layer_types"), rule=kinds.all_window)
QWEN = Architecture(marks=("sliding_window", "layer_types"), rule=kinds.upper_window)
PATTERNED = Architecture(marks=("sliding_window", "layer_types"), rule=kinds.patterned)
LATENT = Architecture(marks=("kv_lora_rank",), attention=mixers.latent_attention)
SPARSE_LATENT = Architecture(
    marks=("kv_lora_rank", "index_topk"), attention=mixers.sparse_latent_attention
)
GATED_DELTA = Architecture(
    marks=("layer_types", "full_attention_interval"),
    rule=kinds.interval_linear,
    attention=mixers.gated_attention,
    recurrence=mixers.gated_delta,
)
MAMBA_FIELDS = ("mamba_d_state", "layer_types", "attn_layer_indices")
GROUPED_BY_LIST = Architecture(
    marks=MAMBA_FIELDS, rule=kinds.listed_attention, recurrence=mixers.mamba_2
)

ARCHITECTURES: dict[str, Architecture] = {
    **dict.fromkeys(
        (
            "llama",
            "gemma",
            "granite",
            "granitemoe",
            "olmo",
            "olmo2",
            "olmoe",
            "stablelm",
            "internlm2",
            "cohere",
            "smollm3",
            "glm",
            "glm4",
            "glm4_moe",
            "minimax_m2",
            "ernie4_5",
            "ernie4_5_moe",
            "hunyuan_v1_dense",
            "hunyuan_v1_moe",
            "seed_oss",
            "arcee",
            "dbrx_text",
            "deepseek",
        ),
        PLAIN,
    ),
    **dict.fromkeys(("mistral", "ministral3", "ministral", "mixtral", "phi3", "phimoe"), WINDOWED),
    **dict.fromkeys(("starcoder2",), Architecture(WINDOWED.marks, WINDOWED.rule, matrices=2)),
    **dict.fromkeys(("nemotron",), Architecture(matrices=2)),
    **dict.fromkeys(
        (
            "qwen2",
            "qwen3",
            "qwen2_moe",
            "qwen3_moe",
            "qwen2_vl",
            "qwen2_vl_text",
            "qwen2_5_vl",
            "qwen2_5_vl_text",
            "qwen3_vl_text",
            "qwen3_vl_moe_text",
        ),
        QWEN,
    ),
    **dict.fromkeys(("gemma3_text", "cohere2", "olmo3", "exaone4"), PATTERNED),
    "gemma2": Architecture(PATTERNED.marks, kinds.alternating),
    "gemma4_text": Architecture(
        marks=("sliding_window", "layer_types", "global_head_dim", "attention_k_eq_v"),
        build=special.gemma4_layers,
    ),
    "gpt_oss": Architecture(PATTERNED.marks, kinds.stated),
    "llama4_text": Architecture(
        marks=("attention_chunk_size", "layer_types"),
        rule=kinds.interleaved_chunks,
        dense_width="intermediate_size_mlp",
    ),
    "mimo_v2_flash": Architecture(
        marks=("sliding_window", "attention_chunk_size", "hybrid_layer_pattern"),
        rule=kinds.hybrid_windows,
        attention=mixers.mimo_attention,
    ),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2", "minicpm3"), LATENT),
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), SPARSE_LATENT),
    "deepseek_v4": Architecture(
        marks=("sliding_window", "compress_ratios", "index_topk"), build=special.deepseek_v4_layers
    ),
    "kimi_linear": Architecture(
        marks=("kv_lora_rank", "linear_attn_config"),
        rule=kinds.numbered_linear,
        attention=mixers.latent_attention,
        recurrence=mixers.kimi_delta,
    ),
    **dict.fromkeys(
        (
            "qwen3_next",
            "qwen3_5_text",
            "qwen3_5_moe_text",
        ),
        GATED_DELTA,
    ),
    "jamba": Architecture(
        marks=("attn_layer_period", "mamba_d_state"),
        rule=kinds.periodic_attention,
        recurrence=mixers.mamba_1,
    ),
    "bamba": GROUPED_BY_LIST,
    "granitemoehybrid": GROUPED_BY_LIST,
    "falcon_h1": Architecture(marks=MAMBA_FIELDS, recurrence=mixers.mamba_2, side_by_side=True),
    "minimax_text_01": Architecture(
        marks=("attn_type_list",),
        rule=kinds.typed_attention,
        recurrence=mixers.lightning_attention,
    ),
    "nemotron_h": Architecture(
        marks=("hybrid_override_pattern", "ssm_state_size"), build=special.nemotron_h_layers
    ),
    "nemotron-nas": Architecture(marks=("block_configs",), build=special.nas_layers),
    "opt": Architecture(attention=mixers.all_heads_attention, matrices=2, dense_width="ffn_dim"),
    "gpt_neox": Architecture(attention=mixers.all_heads_attention, matrices=2),
    "falcon": Architecture(
        attention=mixers.falcon_attention, matrices=2, dense_width="ffn_hidden_size"
    ),
}
"""``model_type`` to how it is read. The names are those of the transformers library, release 5.24."""
