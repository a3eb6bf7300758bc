"""Chunked prefill over pages: many new tokens a sequence, causal, on a cached prefix.

FlashAttention's loop (Dao 2023) over keys gathered through the block table. The query heads of a kv
head are packed: a program's rows are (token, query head) pairs, so a tile of keys is loaded once for
the whole group. A batch may mix chunks of any length, decodes (one new token) among them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .paged import LOG2_E, PagedKV, blocks_of, rows_of, scales_of
from .parts import batch_bound, merge_states, pick
from .products import accumulate, load_query, score, soften, store_halves


class Tuning(NamedTuple):
    """How the kernel is laid out on the machine; changes speed only."""

    rows: int
    """(token, query head) pairs of a program."""
    tile: int
    """Tokens a step of the loop."""
    warps: int
    stages: int
    """Depth of the software pipeline."""


WIDE = Tuning(rows=64, tile=32, warps=4, stages=2)
LONG = Tuning(rows=128, tile=128, warps=8, stages=3)
SHORT = Tuning(rows=64, tile=64, warps=4, stages=3)


def prefill(
    q: Tensor,
    kv: PagedKV,
    block_table: Tensor,
    starts: Tensor,
    lengths: Tensor,
    *,
    scale: float | None = None,
    window: int = 0,
    causal: bool = True,
    splits: int = 1,
    tuning: Tuning | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of each sequence's newest tokens over all its KV, theirs included.

    ``q`` is ``[new_tokens, heads, head_dim]``, sequence after sequence: ``starts`` int32
    ``[batch + 1]`` says where each begins. ``block_table`` int32 ``[batch, max_blocks]``; ``lengths``
    int32 ``[batch]``, tokens in the cache, the new ones included. Without ``causal`` every query
    sees every key. ``splits`` programs share the keys of a query, for few queries on long contexts.
    Returns the output, shaped and typed like ``q``, and the base-2 log-sum-exp ``[new_tokens, heads]``.
    """
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:2], dtype=torch.float32)
    states, logs = out[None], lse[None]
    if splits > 1:
        states = q.new_empty((splits, *q.shape), dtype=torch.float32)
        logs = q.new_empty((splits, *q.shape[:2]), dtype=torch.float32)
    prefill_into(
        states, logs, q, kv, block_table, starts, lengths,
        scale=scale, window=window, causal=causal, tuning=tuning,
    )  # fmt: skip
    if splits > 1:
        merge_states(states, logs, out, lse)
    return out, lse


def prefill_into(
    states: Tensor,
    logs: Tensor,
    q: Tensor,
    kv: PagedKV,
    block_table: Tensor,
    starts: Tensor,
    lengths: Tensor,
    *,
    scale: float | None = None,
    window: int = 0,
    causal: bool = True,
    tuning: Tuning | None = None,
) -> None:
    """As :func:`prefill`, unmerged: split ``i`` of the keys into ``states[i]`` and ``logs[i]``."""
    tokens, heads, head_dim = q.shape
    batch, group = lengths.shape[0], heads // kv.kv_heads
    tuning = tuning or tuned(kv, block_table.shape[1] * kv.block_size)
    k, v, k_scale, v_scale = kv.operands()
    row_tiles = tokens * group // tuning.rows + batch
    _prefill_kernel[(kv.kv_heads, row_tiles, states.shape[0])](
        q, k, v, k_scale, v_scale, block_table, starts, lengths, states, logs,
        LOG2_E * (head_dim**-0.5 if scale is None else scale),
        batch, kv.num_blocks, tokens, heads, q.stride(0), q.stride(1),
        *k.stride()[:3], *kv.scale_strides(), block_table.stride(0),
        GROUP=group, ROWS=tuning.rows, HEAD_DIM=head_dim, BLOCK_SIZE=kv.block_size,
        TILE=tuning.tile, WINDOW=window, CAUSAL=causal, BATCH=batch_bound(batch),
        SCALING=kv.scaling, E4M3=kv.k.dtype == torch.float8_e4m3fn, ASSEMBLY=q.is_cuda,
        STAGES=tuning.stages, num_warps=tuning.warps,
    )  # fmt: skip


def tuned(kv: PagedKV, context: int) -> Tuning:
    """Tall tiles for long contexts, small ones where rows are long."""
    if kv.head_dim * max(2, kv.k.element_size()) > 256:
        return WIDE
    return LONG if context >= 8192 else SHORT


@triton.jit(do_not_specialize=["batch", "num_blocks", "total_tokens", "table_stride"])
def _prefill_kernel(
    q, k, v, k_scale, v_scale, table, starts, lengths, states, logs,
    factor, batch, num_blocks, total_tokens, heads,
    q_stride_token, q_stride_head,
    block_stride, token_stride, head_stride,
    scale_block, scale_token, scale_head,
    table_stride,
    GROUP: tl.constexpr, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr, WINDOW: tl.constexpr, CAUSAL: tl.constexpr, BATCH: tl.constexpr,
    SCALING: tl.constexpr, E4M3: tl.constexpr, ASSEMBLY: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    PACKED: tl.constexpr = SCALING > 0
    STEP: tl.constexpr = 2 if PACKED else 1
    COLUMNS: tl.constexpr = HEAD_DIM // STEP
    head, split, splits = tl.program_id(0), tl.program_id(2), tl.num_programs(2)
    row_tile = tl.num_programs(1) - 1 - tl.program_id(1)  # the longest first

    seqs = tl.arange(0, BATCH)
    seq_start = tl.load(starts + seqs, mask=seqs < batch, other=0)
    news = tl.load(starts + seqs + 1, mask=seqs < batch, other=0) - seq_start
    row_tiles = tl.cdiv(news * GROUP, ROWS)
    ends = tl.cumsum(row_tiles, 0)
    seq = tl.sum((ends <= row_tile).to(tl.int32))
    if seq >= batch:
        return
    new, length = pick(news, seqs, seq), tl.load(lengths + seq)
    first_row = (row_tile - pick(ends - row_tiles, seqs, seq)) * ROWS
    rows, columns = first_row + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    token = pick(seq_start, seqs, seq) + rows // GROUP
    query_head = head * GROUP + rows % GROUP
    present = rows < new * GROUP
    position = length - new + rows // GROUP

    first = length - new + first_row // GROUP
    last = tl.minimum(length - new + (first_row + ROWS - 1) // GROUP, length - 1)
    stop = last + 1 if CAUSAL else length
    clear = first + 1 if CAUSAL else length
    begin = 0
    if WINDOW > 0:
        begin = tl.maximum(first + 1 - WINDOW, 0) // TILE
    share = tl.cdiv(tl.cdiv(stop, TILE) - begin, splits)
    low = (begin + split * share) * TILE
    high = tl.minimum(low + share * TILE, tl.maximum(stop, low))
    middle = low if WINDOW > 0 else tl.minimum(tl.maximum(clear // TILE * TILE, low), high)
    middle = middle // TILE * TILE

    query_at = token.to(tl.int64) * q_stride_token + query_head * q_stride_head
    query, query_odd = load_query(q + query_at[:, None] + STEP * columns[None, :], present, PACKED)
    k += head * head_stride
    v += head * head_stride
    if SCALING == 1:
        factor *= tl.load(k_scale + head * scale_head)
    seq_table = table + seq * table_stride
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, COLUMNS], tl.float32)
    acc_odd = acc
    lanes = tl.arange(0, TILE)
    for masked in tl.static_range(2):
        from_ = middle if masked else low
        to = high if masked else middle
        block = blocks_of(seq_table, from_ + lanes, from_ + lanes < to, BLOCK_SIZE)
        for start in tl.range(from_, to, TILE, num_stages=STAGES):
            tokens = start + lanes
            row, valid = rows_of(block, tokens, num_blocks, block_stride, token_stride, BLOCK_SIZE)
            cells = row[:, None] + columns[None, :]
            keys = tl.load(k + cells, mask=valid[:, None], other=0)
            values = tl.load(v + cells, mask=valid[:, None], other=0)
            scores = score(query, query_odd, keys, PACKED, E4M3, ASSEMBLY)
            if SCALING == 2:
                key_scale = scales_of(
                    k_scale, block, tokens, valid,
                    scale_block, scale_token, head * scale_head, BLOCK_SIZE,
                )  # fmt: skip
                value_scale = scales_of(
                    v_scale, block, tokens, valid,
                    scale_block, scale_token, head * scale_head, BLOCK_SIZE,
                )  # fmt: skip
                scores = scores * (factor * key_scale)[None, :] + tl.log2(value_scale)[None, :]
            if masked:
                seen = (tokens < high)[None, :]
                if CAUSAL:
                    seen &= tokens[None, :] <= position[:, None]
                if WINDOW > 0:
                    seen &= tokens[None, :] > position[:, None] - WINDOW
                scores = tl.where(seen, scores, float("-inf"))
            weights, top, keep = soften(scores, 1.0 if SCALING == 2 else factor, top, masked)
            if SCALING == 2:
                total = total * keep + tl.sum(weights / value_scale[None, :], 1)
            else:
                total = total * keep + tl.sum(weights, 1)
            acc, acc_odd = accumulate(weights, values, keep, acc, acc_odd, PACKED, E4M3, ASSEMBLY)
            block = blocks_of(seq_table, tokens + TILE, tokens + TILE < to, BLOCK_SIZE)

    slot = (split.to(tl.int64) * total_tokens + token) * heads + query_head
    tl.store(logs + slot, top + tl.log2(total), mask=present)
    if SCALING == 1:
        total /= tl.load(v_scale + head * scale_head)
    into = states + slot[:, None] * HEAD_DIM + STEP * columns[None, :]
    store_halves(into, acc, acc_odd, total, present, PACKED)
