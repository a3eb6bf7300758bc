"""MLA decode for many query heads on Hopper, with the layouts of the tensor cores set by hand.

With 128 heads the products cost more than the bytes. Triton's own choice of layouts lets both
warpgroups of a program compute the same scores, since a second product follows the first; written in
Gluon, each computes the scores of half the keys and half of the output's dims, and the next tile is
fetched while the scores are computed.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def _add(a, b):
    return a + b


@gluon.jit
def _row_of(block, tokens, num_blocks, block_stride, token_stride, BLOCK_SIZE: gl.constexpr):
    row = block * (block_stride // 16) + tokens % BLOCK_SIZE * (token_stride // 16)
    return row.to(gl.int64) * 16, (block >= 0) & (block < num_blocks)


@gluon.jit
def _fetch(
    cache, row, valid, latent_into, rope_into,
    WIDE: gl.constexpr, NARROW: gl.constexpr, RANK: gl.constexpr, ROPE: gl.constexpr,
):  # fmt: skip
    """Start copying a tile of rows to shared memory; rows that are not valid become zeros."""
    latent = gl.arange(0, RANK, layout=gl.SliceLayout(0, WIDE))
    rope = gl.arange(0, ROPE, layout=gl.SliceLayout(0, NARROW))
    async_copy.async_copy_global_to_shared(
        latent_into, cache + row[:, None] + latent[None, :], mask=valid[:, None]
    )
    row = gl.convert_layout(row, gl.SliceLayout(1, NARROW))
    valid = gl.convert_layout(valid, gl.SliceLayout(1, NARROW))
    async_copy.async_copy_global_to_shared(
        rope_into, cache + row[:, None] + RANK + rope[None, :], mask=valid[:, None]
    )
    async_copy.commit_group()


@gluon.jit(do_not_specialize=["batch", "parts", "num_blocks", "table_stride"])
def wide_kernel(
    q, cache, table, lengths, partial, partial_lse,
    factor, batch, parts, num_blocks, heads,
    q_stride_seq, q_stride_head, block_stride, token_stride, table_stride,
    ROWS: gl.constexpr, TILE: gl.constexpr, RANK: gl.constexpr, ROPE: gl.constexpr,
    BLOCK_SIZE: gl.constexpr, BATCH: gl.constexpr,
):  # fmt: skip
    """As ``kvsim.kernels.mla._mla_kernel``, for bfloat16."""
    WIDE: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [8, 1], [1, 0])
    NARROW: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0])
    LINE: gl.constexpr = gl.BlockedLayout([1], [32], [8], [0])
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, 32, 16])
    OUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, 256, 16])
    SHARED: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)

    head_tile, part = gl.program_id(0), gl.program_id(1)
    seqs = gl.arange(0, BATCH, layout=LINE)
    tiles = (gl.load(lengths + seqs, mask=seqs < batch, other=0) + TILE - 1) // TILE
    ends = gl.associative_scan(tiles, 0, _add)
    total = gl.sum(tiles, 0)
    share = (total + parts - 1) // parts
    begin = gl.minimum(part * share, total)
    end = gl.minimum(begin + share, total)
    first_seq = gl.sum((ends <= begin).to(gl.int32), 0)
    stop_seq = gl.where(begin < end, gl.sum((ends < end).to(gl.int32), 0) + 1, 0)

    rows_shared = gl.allocate_shared_memory(gl.bfloat16, [2, TILE, RANK], SHARED)
    ropes_shared = gl.allocate_shared_memory(gl.bfloat16, [2, TILE, ROPE], SHARED)
    query = gl.allocate_shared_memory(gl.bfloat16, [ROWS, RANK], SHARED)
    query_rope = gl.allocate_shared_memory(gl.bfloat16, [ROWS, ROPE], SHARED)

    lanes = gl.arange(0, TILE, layout=gl.SliceLayout(1, WIDE))
    keys_at = gl.arange(0, TILE, layout=gl.SliceLayout(0, SCORES))
    first_head = head_tile * ROWS
    wide_heads = first_head + gl.arange(0, ROWS, layout=gl.SliceLayout(1, WIDE))
    narrow_heads = first_head + gl.arange(0, ROWS, layout=gl.SliceLayout(1, NARROW))
    wide_dims = gl.arange(0, RANK, layout=gl.SliceLayout(0, WIDE))
    narrow_dims = RANK + gl.arange(0, ROPE, layout=gl.SliceLayout(0, NARROW))
    score_heads = first_head + gl.arange(0, ROWS, layout=gl.SliceLayout(1, SCORES))
    out_heads = first_head + gl.arange(0, ROWS, layout=gl.SliceLayout(1, OUT))
    out_dims = gl.arange(0, RANK, layout=gl.SliceLayout(0, OUT))
    zeros = gl.zeros([ROWS, TILE], gl.float32, layout=SCORES)

    for seq in range(first_seq, stop_seq):
        seq_end = gl.sum(gl.where(seqs == seq, ends, 0), 0)
        seq_begin = seq_end - gl.sum(gl.where(seqs == seq, tiles, 0), 0)
        low = (gl.maximum(begin, seq_begin) - seq_begin) * TILE
        high = gl.minimum((gl.minimum(end, seq_end) - seq_begin) * TILE, gl.load(lengths + seq))
        seq_table = table + seq * table_stride

        gl.thread_barrier()
        at = q + seq * q_stride_seq + (wide_heads * q_stride_head)[:, None] + wide_dims[None, :]
        query.store(gl.load(at, mask=(wide_heads < heads)[:, None], other=0.0))
        at = q + seq * q_stride_seq + (narrow_heads * q_stride_head)[:, None] + narrow_dims[None, :]
        query_rope.store(gl.load(at, mask=(narrow_heads < heads)[:, None], other=0.0))

        top = gl.full([ROWS], float("-inf"), gl.float32, layout=gl.SliceLayout(1, SCORES))
        sums = zeros
        acc = gl.zeros([ROWS, RANK], gl.float32, layout=OUT)
        tokens = low + lanes
        block = gl.load(seq_table + tokens // BLOCK_SIZE, mask=tokens < high, other=-1)
        row, valid = _row_of(block, tokens, num_blocks, block_stride, token_stride, BLOCK_SIZE)
        _fetch(
            cache, row, valid, rows_shared.index(0), ropes_shared.index(0), WIDE, NARROW, RANK, ROPE
        )
        tokens += TILE
        block = gl.load(seq_table + tokens // BLOCK_SIZE, mask=tokens < high, other=-1)
        buffer = 0
        for start in range(low, high, TILE):
            async_copy.wait_group(0)
            fence_async_shared()
            gl.thread_barrier()
            keys, ropes = rows_shared.index(buffer), ropes_shared.index(buffer)
            scores = warpgroup_mma(query, keys.permute((1, 0)), zeros, use_acc=False, is_async=True)
            scores = warpgroup_mma(query_rope, ropes.permute((1, 0)), scores, is_async=True)

            buffer = 1 - buffer
            row, valid = _row_of(block, tokens, num_blocks, block_stride, token_stride, BLOCK_SIZE)
            _fetch(
                cache, row, valid, rows_shared.index(buffer), ropes_shared.index(buffer),
                WIDE, NARROW, RANK, ROPE,
            )  # fmt: skip
            tokens += TILE
            block = gl.load(seq_table + tokens // BLOCK_SIZE, mask=tokens < high, other=-1)

            scores = warpgroup_mma_wait(0, deps=[scores])
            scores = gl.where((start + keys_at < high)[None, :], scores, float("-inf"))
            new_top = gl.maximum(top, gl.max(scores, 1) * factor)
            weights = gl.exp2(scores * factor - new_top[:, None])
            keep = gl.exp2(top - new_top)
            top = new_top
            sums = sums * keep[:, None] + weights
            left = gl.convert_layout(weights.to(gl.bfloat16), gl.DotOperandLayout(0, OUT, 2))
            acc *= gl.convert_layout(keep, gl.SliceLayout(1, OUT))[:, None]
            acc = warpgroup_mma_wait(0, deps=[warpgroup_mma(left, keys, acc, is_async=True)])
        async_copy.wait_group(0)
        weight = gl.sum(sums, 1)
        slot = (part + seq).to(gl.int64) * heads
        log = top + gl.log2(weight)
        gl.store(partial_lse + slot + score_heads, log, mask=score_heads < heads)
        inverse = gl.convert_layout(1.0 / weight, gl.SliceLayout(1, OUT))
        into = partial + ((slot + out_heads) * RANK)[:, None] + out_dims[None, :]
        gl.store(into, acc * inverse[:, None], mask=(out_heads < heads)[:, None])
