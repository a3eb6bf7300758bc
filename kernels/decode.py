"""Paged decode attention: one new token per sequence reads the KV of its whole context.

Split-KV as in Flash-Decoding (Dao et al. 2023); the query heads that share a kv head are packed into
the rows of one tensor-core product, so a key is read once for all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .paged import LOG2_E, PagedKV, blocks_of, rows_of, scales_of
from .parts import batch_bound, merge_parts, pick, processors, split_count, tile_counts
from .products import accumulate, load_query, score, soften, store_halves


class Tuning(NamedTuple):
    """How a kernel is laid out on the machine; changes speed only."""

    tile: int
    """Tokens a step of the loop."""
    warps: int
    stages: int
    """Depth of the software pipeline."""
    occupancy: int
    """Programs that are to be resident on a multiprocessor."""


BF16 = Tuning(tile=64, warps=4, stages=3, occupancy=3)
FP8 = Tuning(tile=128, warps=4, stages=3, occupancy=2)


def decode(
    q: Tensor,
    kv: PagedKV,
    block_table: Tensor,
    lengths: Tensor,
    *,
    scale: float | None = None,
    window: int = 0,
    tuning: Tuning | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of one query token per sequence over the sequence's KV.

    ``q`` is ``[batch, heads, head_dim]``, ``block_table`` int32 ``[batch, max_blocks]``, ``lengths``
    int32 ``[batch]`` (tokens in the cache, the query's own included; 0 gives zeros). ``scale``
    multiplies the scores, 1/sqrt(head_dim) by default; with ``window`` only the last ``window``
    tokens are seen. Returns the output, shaped and typed like ``q``, and the base-2 logarithm of the
    softmax denominator, float32 ``[batch, heads]``. With 8-bit KV |q| must stay below 65504.
    """
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:2], dtype=torch.float32)
    decode_into(out, lse, q, kv, block_table, lengths, scale=scale, window=window, tuning=tuning)
    return out, lse


def decode_into(
    out: Tensor,
    lse: Tensor,
    q: Tensor,
    kv: PagedKV,
    block_table: Tensor,
    lengths: Tensor,
    *,
    scale: float | None = None,
    window: int = 0,
    tuning: Tuning | None = None,
) -> None:
    """As :func:`decode`, into memory of the caller's choice; ``out`` may be of another type."""
    batch, heads, head_dim = q.shape
    tuning = tuning or tuned(kv)
    most = triton.cdiv(block_table.shape[1] * kv.block_size, tuning.tile)
    resident = processors(q.device) * tuning.occupancy
    parts = split_count(kv.kv_heads, batch * most, resident)
    partial = q.new_empty((parts + batch, heads, head_dim), dtype=torch.float32)
    partial_lse = q.new_empty((parts + batch, heads), dtype=torch.float32)
    _launch(q, kv, block_table, lengths, partial, partial_lse, parts, scale, window, tuning)
    merge_parts(
        partial, partial_lse, lengths, out, lse, parts=parts, window=window, tile=tuning.tile
    )


def tuned(kv: PagedKV) -> Tuning:
    """The tuning for heads of 128, with smaller tiles where rows are longer."""
    tuning, row = (FP8, 128) if kv.scaling else (BF16, 256)
    excess = triton.cdiv(kv.head_dim * kv.k.element_size(), row)
    return tuning._replace(tile=max(16, tuning.tile // excess))


def _launch(
    q: Tensor,
    kv: PagedKV,
    table: Tensor,
    lengths: Tensor,
    partial: Tensor,
    partial_lse: Tensor,
    parts: int,
    scale: float | None,
    window: int,
    tuning: Tuning,
) -> None:
    batch, heads, head_dim = q.shape
    k, v, k_scale, v_scale = kv.operands()
    _decode_kernel[(kv.kv_heads, parts)](
        q, k, v, k_scale, v_scale, table, lengths, partial, partial_lse,
        LOG2_E * (head_dim**-0.5 if scale is None else scale),
        batch, parts, kv.num_blocks, heads, q.stride(0), q.stride(1),
        *k.stride()[:3], *kv.scale_strides(), table.stride(0),
        GROUP=heads // kv.kv_heads,
        ROWS=max(16, triton.next_power_of_2(heads // kv.kv_heads)),
        HEAD_DIM=head_dim, BLOCK_SIZE=kv.block_size, TILE=tuning.tile, WINDOW=window,
        BATCH=batch_bound(batch), SCALING=kv.scaling,
        E4M3=kv.k.dtype == torch.float8_e4m3fn, ASSEMBLY=q.is_cuda, STAGES=tuning.stages,
        num_warps=tuning.warps,
    )  # fmt: skip


@triton.jit(do_not_specialize=["batch", "parts", "num_blocks", "table_stride"])
def _decode_kernel(
    q, k, v, k_scale, v_scale, table, lengths, partial, partial_lse,
    factor, batch, parts, num_blocks, heads,
    q_stride_seq, q_stride_head,
    block_stride, token_stride, head_stride,
    scale_block, scale_token, scale_head,
    table_stride,
    GROUP: tl.constexpr, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr, WINDOW: tl.constexpr, BATCH: tl.constexpr, SCALING: tl.constexpr,
    E4M3: tl.constexpr, ASSEMBLY: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    PACKED: tl.constexpr = SCALING > 0
    STEP: tl.constexpr = 2 if PACKED else 1
    COLUMNS: tl.constexpr = HEAD_DIM // STEP
    head, part = tl.program_id(0), tl.program_id(1)
    seqs = tl.arange(0, BATCH)
    tiles, firsts = tile_counts(lengths, seqs, batch, WINDOW, TILE)
    ends = tl.cumsum(tiles, 0)
    total = tl.sum(tiles)
    share = tl.cdiv(total, parts)
    begin = tl.minimum(part * share, total)
    end = tl.minimum(begin + share, total)
    first_seq = tl.sum((ends <= begin).to(tl.int32))
    stop_seq = tl.where(begin < end, tl.sum((ends < end).to(tl.int32)) + 1, 0)

    rows, columns, lanes = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, TILE)
    query_heads, present = head * GROUP + rows, rows < GROUP
    k += head * head_stride
    v += head * head_stride
    if SCALING == 1:
        factor *= tl.load(k_scale + head * scale_head)
    for seq in tl.range(first_seq, stop_seq, num_stages=1):
        seq_end = pick(ends, seqs, seq)
        seq_begin = seq_end - pick(tiles, seqs, seq)
        shift = pick(firsts, seqs, seq) - seq_begin
        length = tl.load(lengths + seq)
        low = (tl.maximum(begin, seq_begin) + shift) * TILE
        high = tl.minimum((tl.minimum(end, seq_end) + shift) * TILE, length)
        seq_table = table + seq * table_stride
        query_at = q + seq * q_stride_seq + query_heads * q_stride_head
        query, query_odd = load_query(query_at[:, None] + STEP * columns[None, :], present, PACKED)
        top = tl.full([ROWS], float("-inf"), tl.float32)
        sums = tl.zeros([ROWS, TILE], tl.float32)
        acc = tl.zeros([ROWS, COLUMNS], tl.float32)
        acc_odd = acc
        block = blocks_of(seq_table, low + lanes, low + lanes < high, BLOCK_SIZE)
        for start in tl.range(low, high, TILE, num_stages=STAGES):
            tokens = start + lanes
            row, valid = rows_of(block, tokens, num_blocks, block_stride, token_stride, BLOCK_SIZE)
            cells = row[:, None] + columns[None, :]
            keys = tl.load(k + cells, mask=valid[:, None], other=0)
            values = tl.load(v + cells, mask=valid[:, None], other=0)
            scores = score(query, query_odd, keys, PACKED, E4M3, ASSEMBLY)
            inside = tokens < high
            if WINDOW > 0:
                inside &= tokens >= length - WINDOW
            if SCALING == 2:
                # Weights take the values' scales into the exponent, so that float16 holds them.
                key_scale = scales_of(
                    k_scale, block, tokens, valid,
                    scale_block, scale_token, head * scale_head, BLOCK_SIZE,
                )  # fmt: skip
                value_scale = scales_of(
                    v_scale, block, tokens, valid,
                    scale_block, scale_token, head * scale_head, BLOCK_SIZE,
                )  # fmt: skip
                scores = scores * (factor * key_scale)[None, :] + tl.log2(value_scale)[None, :]
            scores = tl.where(inside[None, :], scores, float("-inf"))
            weights, top, keep = soften(scores, 1.0 if SCALING == 2 else factor, top, False)
            if SCALING == 2:
                sums = sums * keep[:, None] + weights / value_scale[None, :]
            else:
                sums = sums * keep[:, None] + weights
            acc, acc_odd = accumulate(weights, values, keep, acc, acc_odd, PACKED, E4M3, ASSEMBLY)
            block = blocks_of(seq_table, tokens + TILE, tokens + TILE < high, BLOCK_SIZE)
        weight = tl.sum(sums, 1)
        slot = (part + seq).to(tl.int64) * heads + query_heads
        tl.store(partial_lse + slot, top + tl.log2(weight), mask=present)
        if SCALING == 1:
            weight /= tl.load(v_scale + head * scale_head)
        into = partial + slot[:, None] * HEAD_DIM + STEP * columns[None, :]
        store_halves(into, acc, acc_odd, weight, present, PACKED)
