"""Attention by its dimensions: what each kind keeps per token, computes per row, and weighs."""

from __future__ import annotations

from typing import Literal

from kvsim.catalog.model import Attention, Stream


def grouped(
    kind: Literal["full", "window", "chunked"],
    *,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    v_head_dim: int | None = None,
    window: int | None = None,
    shared_kv: bool = False,
    gated: bool = False,
) -> Attention:
    """MHA (``kv_heads == heads``), GQA or MQA (1), over all tokens or a window.

    ``shared_kv``: one vector is both key and value. ``gated``: an output gate as wide as the queries.
    """
    v_dim = head_dim if v_head_dim is None else v_head_dim
    k_flops, v_flops = 2 * heads * head_dim, 2 * heads * v_dim
    streams: tuple[Stream, ...] = (
        Stream("k", kv_heads, head_dim, k_flops, k_flops, window=window),
        Stream("v", kv_heads, v_dim, v_flops, v_flops, window=window),
    )
    if shared_kv:
        both = k_flops + v_flops
        streams = (Stream("kv", kv_heads, head_dim, both, both, window=window),)
    projected = kv_heads * head_dim + (0 if shared_kv else kv_heads * v_dim)
    queries = heads * head_dim * (2 if gated else 1)
    weights = hidden * (queries + projected + heads * v_dim)
    return Attention(kind, heads, kv_heads, head_dim, streams, weights)


def latent(
    *,
    hidden: int,
    heads: int,
    kv_lora_rank: int,
    rope_dim: int,
    nope_dim: int,
    v_dim: int,
    q_lora_rank: int | None = None,
    index_heads: int = 0,
    index_dim: int = 0,
    index_top_k: int | None = None,
    gated: bool = False,
) -> Attention:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434), with or without sparse indexer.

    One latent and one rope key per token serve all heads. Decoding works on the latent itself (the
    absorbed form); prefill expands it to full heads. With an indexer (DeepSeek-V3.2) a query reads
    ``index_top_k`` tokens, but scores all of them by their index keys.
    """
    wide = nope_dim + rope_dim
    queries = (
        hidden * heads * wide
        if q_lora_rank is None
        else q_lora_rank * (hidden + heads * wide + index_heads * index_dim)
    )
    keys = hidden * (kv_lora_rank + rope_dim) + kv_lora_rank * heads * (nope_dim + v_dim)
    out = heads * v_dim * hidden * (2 if gated else 1)
    index = hidden * (index_dim + index_heads)
    absorbed = 2 * heads * (2 * kv_lora_rank + rope_dim)
    expanded = 2 * heads * (wide + v_dim)
    streams = [Stream("kv", 1, kv_lora_rank + rope_dim, absorbed, expanded, reach=index_top_k)]
    if index_dim:
        scores = 2 * index_heads * index_dim
        streams.append(Stream("index", 1, index_dim, scores, scores))
    return Attention("latent", heads, 1, wide, tuple(streams), queries + keys + out + index)


def compressed(
    *,
    hidden: int,
    heads: int,
    head_dim: int,
    ratio: int,
    window: int,
    q_lora_rank: int,
    o_lora_rank: int,
    o_groups: int,
    index_heads: int,
    index_dim: int,
    index_top_k: int,
) -> Attention:
    """Compressed attention of DeepSeek-V4: a window of plain rows and one row per ``ratio`` tokens.

    One shared vector per row is key and value. At ratio 4 an indexer (its keys compressed alike and
    kept in the KV dtype) picks ``index_top_k`` rows; at 128 all rows are read; 0 is the window alone.
    """
    flops = 4 * heads * head_dim
    streams = [Stream("kv", 1, head_dim, flops, flops, window=window)]
    indexed = 0 < ratio < 128
    if ratio:
        reach = index_top_k * ratio if indexed else None
        streams.append(Stream("kv", 1, head_dim, flops, flops, stride=ratio, reach=reach))
    if indexed:
        scores = 2 * index_heads * index_dim
        streams.append(Stream("index", 1, index_dim, scores, scores, stride=ratio))
    queries = q_lora_rank * (
        hidden + heads * head_dim + (index_heads * index_dim if indexed else 0)
    )
    out = heads * head_dim * o_lora_rank + o_groups * o_lora_rank * hidden
    keys = hidden * head_dim * (2 if ratio else 1)
    return Attention("compressed", heads, 1, head_dim, tuple(streams), queries + out + keys)
