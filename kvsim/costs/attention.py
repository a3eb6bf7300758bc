"""What attention costs per token of context, by how far it looks back."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from kvsim.catalog.formats import KVFormat, stream_bytes
from kvsim.catalog.model import Layer, ModelSpec
from kvsim.core import BatchShape
from kvsim.costs.series import larger_sum


@dataclass(frozen=True, slots=True)
class Reads:
    """Attention of all layers that look back equally far, in picoseconds."""

    limit: int | None
    """Tokens that a query reads at most."""
    decode: int
    """Per token of context of one decode."""
    pair: int
    """Arithmetic per query-key pair of a prompt."""
    row: int
    """Memory traffic per row of a prompt's context or chunk."""


def limited_attention(reads: Reads, shape: BatchShape, moves: int, steps: int) -> int:
    """Attention of prompts over a window: pairs and context grow until they reach it."""
    _, _, prefills, new, cached, pairs, *_ = shape
    assert reads.limit is not None
    most_pairs, most_cached = new * reads.limit, prefills * reads.limit
    total = done = 0
    while done < steps:
        pair_step = moves * new if pairs < most_pairs else 0
        row_step = moves if cached < most_cached else 0
        ends = [steps - done]
        if pair_step:
            ends.append(-((pairs - most_pairs) // pair_step))
        if row_step:
            ends.append(-((cached - most_cached) // row_step))
        count = min(ends)
        total += larger_sum(
            min(pairs, most_pairs) * reads.pair,
            pair_step * reads.pair,
            (min(cached, most_cached) + new) * reads.row,
            row_step * reads.row,
            count,
        )
        done += count
        pairs, cached = pairs + count * moves * new, cached + count * moves
    return total


def attention_reads(
    model: ModelSpec, kv: KVFormat, shards: int, byte: float, flop: float
) -> list[Reads]:
    """Attention of all layers by how far it looks back; ``byte`` and ``flop`` in picoseconds.

    ``flop`` is already shared between the shards. Coefficients are rounded up to whole picoseconds:
    that keeps sums exact and never goes below the bound.
    """
    sums: dict[int | None, list[float]] = {}
    for layer, count in model.groups.items():
        for limit, size, decode, prefill in lookups(layer, kv, shards):
            total = sums.setdefault(limit, [0.0, 0.0, 0.0])
            total[0] += count * max(size * byte, decode * flop)
            total[1] += count * prefill * flop
            total[2] += count * size * byte
    return [Reads(limit, *(ceil(part) for part in total)) for limit, total in sums.items()]


def lookups(
    layer: Layer, kv: KVFormat, shards: int
) -> list[tuple[int | None, float, float, float]]:
    """Per attention kernel of a layer: reach, then bytes, decode and prefill FLOPs per token."""
    attention = layer.attention
    if attention is None:
        return []
    kernels: dict[tuple[bool, int | None], list[float]] = {}
    for stream in attention.streams:
        limit = stream.window if stream.window is not None else stream.reach
        heads = max(1, stream.heads // shards)
        kernel = kernels.setdefault((stream.role == "index", limit), [0.0, 0.0, 0.0])
        kernel[0] += stream_bytes(kv, attention, stream, heads) / stream.stride
        kernel[1] += stream.decode_flops / stream.stride
        kernel[2] += stream.prefill_flops / stream.stride
    return [(limit, size, decode, fill) for (_, limit), (size, decode, fill) in kernels.items()]
