"""Attention and recurrence of one layer, from the fields of a Hugging Face config."""

from __future__ import annotations

from kvsim.catalog import recurrence
from kvsim.catalog.attention import grouped, latent
from kvsim.catalog.fields import Fields
from kvsim.catalog.kinds import Kind
from kvsim.catalog.model import Attention, Recurrent


def head_dim(fields: Fields) -> int:
    """The stated head dimension, else hidden size over heads, which must divide."""
    stated = fields.maybe("head_dim", "attention_head_dim")
    if stated is not None:
        return stated
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    if hidden % heads:
        fields.fail("hidden_size", f"a multiple of num_attention_heads ({heads})")
    return hidden // heads


def key_value_heads(fields: Fields, heads: int, name: str = "num_key_value_heads") -> int:
    """KV heads; a config must state them, since their absence says nothing about sharing."""
    kv_heads = fields.count(name, most=heads)
    if heads % kv_heads:
        fields.fail(name, f"a divisor of the {heads} query heads")
    return kv_heads


def window(fields: Fields, kind: Kind) -> int | None:
    """Tokens that a layer of this kind can look back on; None without limit."""
    if kind == "window":
        return fields.count("sliding_window")
    return fields.count("attention_chunk_size") if kind == "chunked" else None


def grouped_attention(fields: Fields, kind: Kind) -> Attention:
    """MHA, GQA or MQA, whichever the head counts say."""
    return standard(fields, kind, gated=False)


def gated_attention(fields: Fields, kind: Kind) -> Attention:
    """The same with an output gate (Qwen3-Next, Qwen3.5)."""
    return standard(fields, kind, gated=fields.flag("attn_output_gate", default=True))


def standard(fields: Fields, kind: Kind, *, gated: bool) -> Attention:
    """Grouped-query attention with the usual field names."""
    assert kind != "linear"
    heads = fields.count("num_attention_heads")
    return grouped(
        kind,
        hidden=fields.count("hidden_size"),
        heads=heads,
        kv_heads=key_value_heads(fields, heads),
        head_dim=head_dim(fields),
        v_head_dim=fields.maybe("v_head_dim"),
        window=window(fields, kind),
        gated=gated,
    )


def all_heads_attention(fields: Fields, kind: Kind) -> Attention:
    """MHA by architecture: OPT and GPT-NeoX have no field for KV heads."""
    heads = fields.count("num_attention_heads")
    return grouped(
        "full",
        hidden=fields.count("hidden_size"),
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim(fields),
    )


def falcon_attention(fields: Fields, kind: Kind) -> Attention:
    """Falcon: ``num_kv_heads`` with the new decoder, else one KV head or all by ``multi_query``."""
    heads = fields.count("num_attention_heads")
    if fields.flag("new_decoder_architecture", default=False):
        kv_heads = key_value_heads(fields, heads, "num_kv_heads")
    else:
        kv_heads = 1 if fields.flag("multi_query", default=True) else heads
    return grouped(
        "full",
        hidden=fields.count("hidden_size"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim(fields),
    )


def mimo_attention(fields: Fields, kind: Kind) -> Attention:
    """MiMo-V2: window layers have heads and dimensions of their own; K and V differ."""
    prefix = "swa_" if kind == "window" else ""
    heads = fields.count(f"{prefix}num_attention_heads")
    return grouped(
        "window" if kind == "window" else "full",
        hidden=fields.count("hidden_size"),
        heads=heads,
        kv_heads=key_value_heads(fields, heads, f"{prefix}num_key_value_heads"),
        head_dim=fields.count(f"{prefix}head_dim"),
        v_head_dim=fields.count(f"{prefix}v_head_dim"),
        window=window(fields, kind),
    )


def latent_attention(fields: Fields, kind: Kind) -> Attention:
    """MLA, optionally with an output gate (Kimi K3)."""
    return multi_head_latent(fields, index_heads=0, index_dim=0, index_top_k=None)


def sparse_latent_attention(fields: Fields, kind: Kind) -> Attention:
    """MLA with the indexer of DeepSeek sparse attention."""
    return multi_head_latent(
        fields,
        index_heads=fields.count("index_n_heads"),
        index_dim=fields.count("index_head_dim"),
        index_top_k=fields.count("index_topk"),
    )


def multi_head_latent(
    fields: Fields, *, index_heads: int, index_dim: int, index_top_k: int | None
) -> Attention:
    """MLA with the field names of DeepSeek-V2 and its successors."""
    return latent(
        hidden=fields.count("hidden_size"),
        heads=fields.count("num_attention_heads"),
        kv_lora_rank=fields.count("kv_lora_rank"),
        rope_dim=fields.count("qk_rope_head_dim"),
        nope_dim=fields.count("qk_nope_head_dim"),
        v_dim=fields.count("v_head_dim"),
        q_lora_rank=fields.maybe("q_lora_rank"),
        index_heads=index_heads,
        index_dim=index_dim,
        index_top_k=index_top_k,
        gated=fields.flag("mla_use_output_gate", default=False),
    )


def gated_delta(fields: Fields) -> Recurrent:
    """The linear layers of Qwen3-Next and Qwen3.5."""
    return recurrence.gated_delta_net(
        hidden=fields.count("hidden_size"),
        key_heads=fields.count("linear_num_key_heads"),
        value_heads=fields.count("linear_num_value_heads"),
        key_dim=fields.count("linear_key_head_dim"),
        value_dim=fields.count("linear_value_head_dim"),
        kernel=fields.count("linear_conv_kernel_dim"),
    )


def kimi_delta(fields: Fields) -> Recurrent:
    """The linear layers of Kimi Linear."""
    config = fields.table("linear_attn_config")
    return recurrence.kda(
        hidden=fields.count("hidden_size"),
        heads=config.count("num_heads"),
        head_dim=config.count("head_dim"),
        kernel=config.count("short_conv_kernel_size"),
    )


def mamba_1(fields: Fields) -> Recurrent:
    """The Mamba layers of Jamba."""
    hidden = fields.count("hidden_size")
    return recurrence.mamba1(
        hidden=hidden,
        inner=hidden * fields.count("mamba_expand"),
        state=fields.count("mamba_d_state"),
        kernel=fields.count("mamba_d_conv"),
        dt_rank=fields.maybe("mamba_dt_rank") or -(-hidden // 16),
    )


def mamba_2(fields: Fields) -> Recurrent:
    """The Mamba-2 layers of Bamba, Granite-4 and Falcon-H1."""
    return recurrence.mamba2(
        hidden=fields.count("hidden_size"),
        heads=fields.count("mamba_n_heads"),
        head_dim=fields.count("mamba_d_head"),
        state=fields.count("mamba_d_state"),
        groups=fields.count("mamba_n_groups"),
        kernel=fields.count("mamba_d_conv"),
    )


def lightning_attention(fields: Fields) -> Recurrent:
    """The linear layers of MiniMax-Text-01."""
    return recurrence.lightning(
        hidden=fields.count("hidden_size"),
        heads=fields.count("num_attention_heads"),
        head_dim=head_dim(fields),
    )
