"""The weight matrices of a model's layers on one GPU, as serving engines fuse them.

Queries, keys and values are one product, and so are gate and up. A catalog model states its layers'
dimensions and parameters; what cannot be told from them is one matrix of the right size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kvsim.catalog.model import Attention, Layer, Mlp, ModelSpec, Recurrent


class Matrix(NamedTuple):
    """A weight matrix ``[n, k]``: ``n`` outputs from ``k`` inputs."""

    name: str
    n: int
    k: int


def layer_matrices(layer: Layer, model: ModelSpec, shards: int) -> Iterator[Matrix]:
    """Matrices that every token passes in a layer; not the routed experts."""
    if layer.attention is not None:
        yield from attention_matrices(layer.attention, model.hidden, shards)
    if layer.recurrent is not None:
        yield from recurrent_matrices(layer.recurrent, model.hidden, shards)
    if layer.mlp is not None:
        yield from mlp_matrices(layer.mlp, model.hidden, shards)


def attention_matrices(attention: Attention, hidden: int, shards: int) -> Iterator[Matrix]:
    """Projections of one attention."""
    if attention.kind == "latent":
        yield from latent_matrices(attention, hidden, shards)
        return
    if attention.kind == "compressed":
        half = attention.weights // (2 * hidden)
        yield Matrix("attention in", share(half, shards), hidden)
        yield Matrix("attention out", hidden, share(half, shards))
        return
    v_dim = next((s.dim for s in attention.streams if s.role == "v"), attention.head_dim)
    out = attention.heads * v_dim
    inputs = attention.weights // hidden - out
    yield Matrix("attention in", share(inputs, shards), hidden)
    yield Matrix("attention out", hidden, share(out, shards))


def latent_matrices(attention: Attention, hidden: int, shards: int) -> Iterator[Matrix]:
    """MLA: what goes down to the latents is on every GPU, what comes up from them is shared."""
    heads, wide = attention.heads, attention.head_dim
    rank, rope, v_dim = latent_dims(attention)
    index = next((stream for stream in attention.streams if stream.role == "index"), None)
    index_dim = index.dim if index else 0
    index_heads = index.decode_flops // (2 * index_dim) if index else 0
    up = heads * (wide - rope + v_dim)
    keys = hidden * (rank + rope) + rank * up
    queries = attention.weights - keys - heads * v_dim * hidden - hidden * (index_dim + index_heads)
    wide_queries = heads * wide + index_heads * index_dim
    if queries == hidden * heads * wide:
        yield Matrix("attention in", share(heads * wide, shards) + rank + rope, hidden)
    else:
        query_rank = max(1, queries // (hidden + wide_queries))
        yield Matrix("latents", query_rank + rank + rope + index_dim + index_heads, hidden)
        yield Matrix("queries", share(wide_queries, shards), query_rank)
    yield Matrix("keys, values", share(up, shards), rank)
    yield Matrix("attention out", hidden, share(heads * v_dim, shards))


def latent_dims(attention: Attention) -> tuple[int, int, int]:
    """Rank of the latent, rotary dims and value dims of an MLA, from its streams' FLOPs."""
    stream, per_head = attention.streams[0], 2 * attention.heads
    rank = stream.decode_flops // per_head - stream.dim
    return rank, stream.dim - rank, stream.prefill_flops // per_head - attention.head_dim


def recurrent_matrices(recurrent: Recurrent, hidden: int, shards: int) -> Iterator[Matrix]:
    """Projections of a recurrence: about two thirds lead in, one third out."""
    third = recurrent.weights // (3 * hidden)
    yield Matrix("recurrence in", share(2 * third, shards), hidden)
    yield Matrix("recurrence out", hidden, share(third, shards))


def mlp_matrices(mlp: Mlp, hidden: int, shards: int) -> Iterator[Matrix]:
    """Dense and shared parts, and the router."""
    for name, weights in (("mlp", mlp.dense), ("shared experts", mlp.shared)):
        if weights:
            matrices = matrix_count(weights, hidden)
            width = weights // (matrices * hidden)
            yield Matrix(f"{name} in", (matrices - 1) * share(width, shards), hidden)
            yield Matrix(f"{name} out", hidden, share(width, shards))
    if mlp.router:
        yield Matrix("router", mlp.router // hidden, hidden)


def matrix_count(weights: int, hidden: int) -> int:
    """3 for a gated MLP, 2 where its weights cannot be three matrices."""
    return 3 if weights % (3 * hidden) == 0 else 2


def share(width: int, shards: int) -> int:
    """The part of a width that one GPU computes."""
    return max(1, -(-width // shards))
