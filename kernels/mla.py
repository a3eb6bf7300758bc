"""Paged decode for multi-head latent attention (DeepSeek-V2, 2024), with the projections absorbed.

The cache holds one row per token, shared by all heads: ``rank`` latent dims, which serve as key and
as value, and ``rope`` more that only the key has. All query heads are rows of one product.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .mla_merge import merge_latents
from .paged import LOG2_E, blocks_of, rows_of
from .parts import batch_bound, pick, processors, split_count, tile_counts
from .products import soften


class Tuning(NamedTuple):
    """How the kernel is laid out on the machine; changes speed only."""

    rows: int
    """Query heads of a program."""
    tile: int
    """Tokens a step of the loop."""
    warps: int
    stages: int
    """Depth of the software pipeline."""
    occupancy: int
    """Programs that are to be resident on a multiprocessor."""


FEW_HEADS = Tuning(rows=16, tile=64, warps=4, stages=2, occupancy=2)
MANY_HEADS = Tuning(rows=64, tile=64, warps=8, stages=2, occupancy=1)
HOPPER = Tuning(rows=64, tile=64, warps=4, stages=2, occupancy=1)
HOPPER_REGISTERS = {"VALUE_REGS": 160, "LOAD_REGS": 56}
"""Of a thread that sums values and one that copies; one that scores has the rest of 512."""


def mla_decode(
    q: Tensor,
    cache: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    *,
    rank: int,
    scale: float,
    tuning: Tuning | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of one query token per sequence over the latent rows of its context.

    ``q`` is ``[batch, heads, rank + rope]`` with the key projection absorbed; ``cache``
    ``[num_blocks, block_size, rank + rope]``; ``block_table`` int32 ``[batch, max_blocks]``;
    ``lengths`` int32 ``[batch]``. ``rank`` and ``rope`` are powers of two (512 and 64). Returns
    latent outputs ``[batch, heads, rank]``, typed like ``q``, and the base-2 log-sum-exp.
    Blocks that do not exist read as zeros.
    """
    q = q.contiguous()
    batch, heads, width = q.shape
    hopper = tuning is None and _on_hopper(q, rank, width - rank)
    many = heads > 32 and q.element_size() == 2
    tuning = tuning or (HOPPER if hopper else MANY_HEADS if many else FEW_HEADS)
    head_tiles = triton.cdiv(heads, tuning.rows)
    most = triton.cdiv(block_table.shape[1] * cache.shape[1], tuning.tile)
    resident = processors(q.device) * tuning.occupancy
    parts = _whole_shares(split_count(head_tiles, batch * most, resident), batch)
    partial = q.new_empty((parts + batch, heads, rank), dtype=torch.float32)
    partial_lse = q.new_empty((parts + batch, heads), dtype=torch.float32)
    out = q.new_empty((batch, heads, rank))
    lse = q.new_empty((batch, heads), dtype=torch.float32)
    shape = (
        LOG2_E * scale, batch, parts, cache.shape[0], heads, q.stride(0), q.stride(1),
        cache.stride(0), cache.stride(1), block_table.stride(0),
    )  # fmt: skip
    sizes = {
        "ROWS": tuning.rows, "TILE": tuning.tile, "RANK": rank, "ROPE": width - rank,
        "BLOCK_SIZE": cache.shape[1], "BATCH": batch_bound(batch), "num_warps": tuning.warps,
    }  # fmt: skip
    memory = (q, cache, block_table, lengths, partial, partial_lse)
    if hopper:
        from .mla_hopper import hopper_kernel

        hopper_kernel[(head_tiles, parts)](*memory, out, lse, *shape, **sizes, **HOPPER_REGISTERS)
    else:
        _mla_kernel[(head_tiles, parts)](*memory, *shape, **sizes, STAGES=tuning.stages)
    merge_latents(
        partial, partial_lse, lengths,
        parts=parts, tile=tuning.tile, into=(out, lse), settled=hopper,
    )  # fmt: skip
    return out, lse


def _whole_shares(parts: int, batch: int) -> int:
    """Somewhat fewer programs, where sequences of one length are then cut alike or not at all."""
    each = triton.cdiv(batch, parts)
    even = parts // batch * batch if parts >= batch else triton.cdiv(batch, each)
    return even if even >= 0.95 * parts else parts


def _on_hopper(q: Tensor, rank: int, rope: int) -> bool:
    """Whether the kernel that is laid out for Hopper and DeepSeek's sizes can run.

    It is written in Gluon, which is experimental and changes: as Triton 3.6 has it.
    """
    fits = q.is_cuda and q.dtype == torch.bfloat16 and (rank, rope) == (512, 64)
    capable = fits and torch.cuda.get_device_capability(q.device) == (9, 0)
    return capable and triton.__version__.startswith("3.6.")


@triton.jit(do_not_specialize=["batch", "parts", "num_blocks", "table_stride"])
def _mla_kernel(
    q, cache, table, lengths, partial, partial_lse,
    factor, batch, parts, num_blocks, heads,
    q_stride_seq, q_stride_head, block_stride, token_stride, table_stride,
    ROWS: tl.constexpr, RANK: tl.constexpr, ROPE: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr, BATCH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    head_tile, part = tl.program_id(0), tl.program_id(1)
    seqs = tl.arange(0, BATCH)
    tiles, _ = tile_counts(lengths, seqs, batch, 0, TILE)
    ends = tl.cumsum(tiles, 0)
    total = tl.sum(tiles)
    share = tl.cdiv(total, parts)
    begin = tl.minimum(part * share, total)
    end = tl.minimum(begin + share, total)
    first_seq = tl.sum((ends <= begin).to(tl.int32))
    stop_seq = tl.where(begin < end, tl.sum((ends < end).to(tl.int32)) + 1, 0)

    query_heads = head_tile * ROWS + tl.arange(0, ROWS)
    present = query_heads < heads
    latent, rope, lanes = tl.arange(0, RANK), tl.arange(0, ROPE), tl.arange(0, TILE)
    for seq in tl.range(first_seq, stop_seq, num_stages=1):
        seq_end = pick(ends, seqs, seq)
        seq_begin = seq_end - pick(tiles, seqs, seq)
        low = (tl.maximum(begin, seq_begin) - seq_begin) * TILE
        high = tl.minimum((tl.minimum(end, seq_end) - seq_begin) * TILE, tl.load(lengths + seq))
        seq_table = table + seq * table_stride
        query_at = (q + seq * q_stride_seq + query_heads * q_stride_head)[:, None]
        query = tl.load(query_at + latent[None, :], mask=present[:, None], other=0.0)
        query_rope = tl.load(query_at + RANK + rope[None, :], mask=present[:, None], other=0.0)
        top = tl.full([ROWS], float("-inf"), tl.float32)
        total_weight = tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, RANK], tl.float32)
        block = blocks_of(seq_table, low + lanes, low + lanes < high, BLOCK_SIZE)
        for start in tl.range(low, high, TILE, num_stages=STAGES):
            tokens = start + lanes
            row, valid = rows_of(block, tokens, num_blocks, block_stride, token_stride, BLOCK_SIZE)
            cells = (cache + row)[:, None]
            rows = tl.load(cells + latent[None, :], mask=valid[:, None], other=0.0)
            keys_rope = tl.load(cells + RANK + rope[None, :], mask=valid[:, None], other=0.0)
            scores = tl.dot(query, tl.trans(rows), input_precision="ieee")
            scores = tl.dot(query_rope, tl.trans(keys_rope), scores, input_precision="ieee")
            scores = tl.where((tokens < high)[None, :], scores, float("-inf"))
            weights, top, keep = soften(scores, factor, top, False)
            total_weight = total_weight * keep + tl.sum(weights, 1)
            acc = tl.dot(weights.to(rows.dtype), rows, acc * keep[:, None], input_precision="ieee")
            block = blocks_of(seq_table, tokens + TILE, tokens + TILE < high, BLOCK_SIZE)
        slot = (part + seq).to(tl.int64) * heads + query_heads
        tl.store(partial_lse + slot, top + tl.log2(total_weight), mask=present)
        into = partial + slot[:, None] * RANK + latent[None, :]
        tl.store(into, acc / total_weight[:, None], mask=present[:, None])
