"""MLA decode on Hopper, its stages divided among warpgroups.

Tensor cores, exponentials and copies are to work at the same time. A program takes 64 heads: one
warpgroup copies tiles of 64 tokens to shared memory, one computes their scores and weights, and two
sum the values, half of the dims each. Two tiles fit: while one is scored, the values of the other
are summed, and whichever half is done is filled again. The weights take the place of the keys' last
dims, which the scores alone need, and are handed over in two parts: a tile's first tokens are summed
while the others' exponentials are computed. Mbarriers say what is full, weighed and empty.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from .mla_shares import segment_of, span_of

STAGES = gl.constexpr(2)
THREADS = gl.constexpr(128)
WIDE = gl.constexpr(gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0]))
SCORES = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]))
PART = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 32, 16]))
OUT = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16]))
TILED = gl.constexpr(gl.NVMMASharedLayout(128, 16, 2))
NARROW = gl.constexpr(gl.NVMMASharedLayout(64, 16, 2))
PLAIN = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))


@gluon.jit
def _signal(barrier):
    """Tell the other groups, once every warp of this one is here."""
    gl.thread_barrier()
    mbarrier.arrive(barrier)


@gluon.jit
def _barriers(number: gl.constexpr, count: gl.constexpr):
    """Mbarriers that ``count`` arrivals complete."""
    barriers = gl.allocate_shared_memory(gl.int64, [number, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(number):
        mbarrier.init(barriers.index(i), count=count)
    return barriers


@gluon.jit
def _copy(rows, into, valid, FIRST: gl.constexpr, DIMS: gl.constexpr):
    """Start copying dims from ``FIRST`` on of rows to shared memory; invalid rows become zeros."""
    dims = FIRST + gl.arange(0, DIMS, layout=gl.SliceLayout(0, WIDE))
    async_copy.async_copy_global_to_shared(into, rows[:, None] + dims[None, :], mask=valid[:, None])


@gluon.jit
def _load(
    span, memory, query, tiles, query_bars, full, empty,
    ROWS: gl.constexpr, BLOCK_SIZE: gl.constexpr,
):  # fmt: skip
    """Keep the tiles of shared memory filled."""
    q, cache, table, num_blocks, heads = memory[0], memory[1], memory[2], memory[3], memory[4]
    q_stride_seq, q_stride_head = memory[5], memory[6]
    block_stride, token_stride, table_stride = memory[7], memory[8], memory[9]
    TILE: gl.constexpr = tiles[0].shape[1]
    HALF: gl.constexpr = tiles[0].shape[2]
    ROPE: gl.constexpr = tiles[2].shape[2]
    lanes = gl.arange(0, TILE, layout=gl.SliceLayout(1, WIDE))
    own_heads = memory[10] + gl.arange(0, ROWS, layout=gl.SliceLayout(1, WIDE))
    step = 0
    for seq in range(span[1], span[2]):
        low, high, last, _whole = segment_of(span, seq, TILE)
        seq_table = table + seq * table_stride
        tokens = low + lanes
        block = gl.load(seq_table + tokens // BLOCK_SIZE, mask=tokens < high, other=-1)
        mbarrier.wait(query_bars[1], ((seq - span[1]) & 1) ^ 1)
        rows = q + seq * q_stride_seq + own_heads * q_stride_head
        _copy(rows, query[0], own_heads < heads, 0, HALF)
        _copy(rows, query[1], own_heads < heads, HALF, HALF)
        _copy(rows, query[2], own_heads < heads, 2 * HALF, ROPE)
        async_copy.mbarrier_arrive(query_bars[0], increment_count=False)
        for _ in range(low, last + 1, TILE):
            slot = step % STAGES
            phase = (step // STAGES & 1) ^ 1
            row = block * (block_stride // 16) + tokens % BLOCK_SIZE * (token_stride // 16)
            rows = cache + row.to(gl.int64) * 16
            valid = (block >= 0) & (block < num_blocks)
            tokens += TILE
            block = gl.load(seq_table + tokens // BLOCK_SIZE, mask=tokens < high, other=-1)
            mbarrier.wait(empty[0].index(slot), phase)
            _copy(rows, tiles[0].index(slot), valid, 0, HALF)
            async_copy.mbarrier_arrive(full[0].index(slot), increment_count=False)
            mbarrier.wait(empty[1].index(slot), phase)
            _copy(rows, tiles[1].index(slot), valid, HALF, HALF)
            _copy(rows, tiles[2].index(slot), valid, 2 * HALF, ROPE)
            async_copy.mbarrier_arrive(full[1].index(slot), increment_count=False)
            step += 1


@gluon.jit
def _score(query, tiles, full, step):
    """Scores of a tile, still being computed."""
    slot = step % STAGES
    phase = step // STAGES & 1
    left, right, rope = tiles[0].index(slot), tiles[1].index(slot), tiles[2].index(slot)
    ROWS: gl.constexpr = query[0].shape[0]
    TILE: gl.constexpr = left.shape[0]
    zeros = gl.zeros([ROWS, TILE], gl.float32, layout=SCORES)
    mbarrier.wait(full[0].index(slot), phase)
    mbarrier.wait(full[1].index(slot), phase)
    fence_async_shared()
    scores = warpgroup_mma(query[0], left.permute((1, 0)), zeros, use_acc=False, is_async=True)
    scores = warpgroup_mma(query[1], right.permute((1, 0)), scores, is_async=True)
    return warpgroup_mma(query[2], rope.permute((1, 0)), scores, is_async=True)


@gluon.jit
def _parts(scores):
    """The scores of a tile's first tokens and those of the others."""
    ROWS: gl.constexpr = scores.shape[0]
    TILE: gl.constexpr = scores.shape[1]
    halves = gl.permute(gl.reshape(scores, [ROWS, 2, TILE // 2]), [0, 2, 1])
    early, late = gl.split(halves)
    return gl.convert_layout(early, PART), gl.convert_layout(late, PART)


@gluon.jit
def _weights(rope):
    """Where a tile's weights lie: ``[part, head, token]``, in the place of its keys' last dims."""
    TILE: gl.constexpr = rope.shape[0]
    return rope._reinterpret(gl.bfloat16, [2, rope.shape[1], TILE // 2], NARROW)


@gluon.jit
def _hand_over(scores, top, factor, rope, keep_into, kept, weighed, slot):
    """Tell the groups that sum how much of earlier sums to keep, then give them the weights."""
    highest = gl.convert_layout(gl.max(scores, 1), gl.SliceLayout(1, PART))
    new_top = gl.maximum(top, highest * factor)
    keep = gl.exp2(top - new_top)
    keep_into.store(keep)
    _signal(kept.index(slot))
    early, late = _parts(scores)
    early = gl.exp2(early * factor - new_top[:, None])
    _weights(rope).index(0).store(early.to(gl.bfloat16))
    fence_async_shared()
    _signal(weighed[0].index(slot))
    late = gl.exp2(late * factor - new_top[:, None])
    _weights(rope).index(1).store(late.to(gl.bfloat16))
    fence_async_shared()
    _signal(weighed[1].index(slot))
    return early, late, keep, new_top


@gluon.jit
def _weigh(
    span, query, tiles, scalings, query_bars, full, kept, weighed, final_bars, partial_lse, lse,
    factor, first_head, heads,
):  # fmt: skip
    """Scores, and from them the softmax's weights; only a sequence's last tile needs a mask."""
    TILE: gl.constexpr = tiles[0].shape[1]
    ROWS: gl.constexpr = query[0].shape[0]
    keys_at = gl.arange(0, TILE, layout=gl.SliceLayout(0, SCORES))
    own_heads = first_head + gl.arange(0, ROWS, layout=gl.SliceLayout(1, PART))
    step = 0
    for seq in range(span[1], span[2]):
        segment = seq - span[1]
        low, high, last, whole = segment_of(span, seq, TILE)
        top = gl.full([ROWS], float("-inf"), gl.float32, layout=gl.SliceLayout(1, PART))
        keep = gl.full([ROWS], 0.0, gl.float32, layout=gl.SliceLayout(1, PART))
        total = keep
        early = gl.zeros([ROWS, TILE // 2], gl.float32, layout=PART)
        late = early
        mbarrier.wait(query_bars[0], segment & 1)
        for _ in range(low, last, TILE):
            slot = step % STAGES
            scores = _score(query, tiles, full, step)
            total = total * keep + gl.sum(early + late, 1)
            scores, total = warpgroup_mma_wait(0, deps=[scores, total])
            early, late, keep, top = _hand_over(
                scores, top, factor, tiles[2].index(slot), scalings.index(slot), kept, weighed, slot
            )
            step += 1
        slot = step % STAGES
        scores = _score(query, tiles, full, step)
        total = total * keep + gl.sum(early + late, 1)
        scores, total = warpgroup_mma_wait(0, deps=[scores, total])
        _signal(query_bars[1])
        scores = gl.where((last + keys_at < high)[None, :], scores, float("-inf"))
        early, late, keep, top = _hand_over(
            scores, top, factor, tiles[2].index(slot), scalings.index(slot), kept, weighed, slot
        )
        step += 1
        total = total * keep + gl.sum(early + late, 1)
        rows = gl.where(whole, seq, span[5] + seq).to(gl.int64) * heads + own_heads
        into = gl.where(whole, lse, partial_lse)
        gl.store(into + rows, top + gl.log2(total), mask=own_heads < heads)
        mbarrier.wait(final_bars[1], (segment & 1) ^ 1)
        scalings.index(STAGES).store(1.0 / total)
        _signal(final_bars[0])


@gluon.jit
def _sum(
    span, values, ropes, scalings, kept, weighed, empty, final_bars, partial, out,
    first_head, heads, FIRST: gl.constexpr, RANK: gl.constexpr,
):  # fmt: skip
    """Weighted sums of the values' dims from ``FIRST`` on."""
    TILE: gl.constexpr = values.shape[1]
    DIMS: gl.constexpr = values.shape[2]
    ROWS: gl.constexpr = scalings.shape[1]
    own_heads = first_head + gl.arange(0, ROWS, layout=gl.SliceLayout(1, OUT))
    dims = FIRST + gl.arange(0, DIMS, layout=gl.SliceLayout(0, OUT))
    step = 0
    for seq in range(span[1], span[2]):
        segment = seq - span[1]
        low, _high, last, whole = segment_of(span, seq, TILE)
        acc = gl.zeros([ROWS, DIMS], gl.float32, layout=OUT)
        for _ in range(low, last + 1, TILE):
            slot = step % STAGES
            phase = step // STAGES & 1
            mbarrier.wait(kept.index(slot), phase)
            acc *= scalings.index(slot).load(gl.SliceLayout(1, OUT))[:, None]
            for part in gl.static_range(2):
                mbarrier.wait(weighed[part].index(slot), phase)
                fence_async_shared()
                tokens = values.index(slot).slice(part * TILE // 2, TILE // 2)
                acc = warpgroup_mma(
                    _weights(ropes.index(slot)).index(part), tokens, acc, is_async=True
                )
            acc = warpgroup_mma_wait(0, deps=[acc])
            _signal(empty.index(slot))
            step += 1
        mbarrier.wait(final_bars[0], segment & 1)
        acc *= scalings.index(STAGES).load(gl.SliceLayout(1, OUT))[:, None]
        _signal(final_bars[1])
        present = (own_heads < heads)[:, None]
        if whole:
            rows = gl.to_tensor(seq).to(gl.int64) * heads + own_heads
            at = out + (rows * RANK)[:, None] + dims[None, :]
            gl.store(at, acc.to(gl.bfloat16), mask=present)
        else:
            rows = (span[5] + seq).to(gl.int64) * heads + own_heads
            gl.store(partial + (rows * RANK)[:, None] + dims[None, :], acc, mask=present)


@gluon.jit(do_not_specialize=["batch", "parts", "num_blocks", "table_stride"])
def hopper_kernel(
    q, cache, table, lengths, partial, partial_lse, out, lse,
    factor, batch, parts, num_blocks, heads,
    q_stride_seq, q_stride_head, block_stride, token_stride, table_stride,
    ROWS: gl.constexpr, TILE: gl.constexpr, RANK: gl.constexpr, ROPE: gl.constexpr,
    BLOCK_SIZE: gl.constexpr, BATCH: gl.constexpr,
    VALUE_REGS: gl.constexpr, LOAD_REGS: gl.constexpr,
):  # fmt: skip
    """As ``kvsim.kernels.mla._mla_kernel``, for bfloat16; whole sequences go straight to ``out``."""
    HALF: gl.constexpr = RANK // 2
    head_tile, part = gl.program_id(0), gl.program_id(1)
    span = span_of(lengths, batch, part, parts, TILE, BATCH)
    query = (
        gl.allocate_shared_memory(gl.bfloat16, [ROWS, HALF], TILED),
        gl.allocate_shared_memory(gl.bfloat16, [ROWS, HALF], TILED),
        gl.allocate_shared_memory(gl.bfloat16, [ROWS, ROPE], TILED),
    )
    tiles = (
        gl.allocate_shared_memory(gl.bfloat16, [STAGES, TILE, HALF], TILED),
        gl.allocate_shared_memory(gl.bfloat16, [STAGES, TILE, HALF], TILED),
        gl.allocate_shared_memory(gl.bfloat16, [STAGES, TILE, ROPE], TILED),
    )
    scalings = gl.allocate_shared_memory(gl.float32, [STAGES + 1, ROWS], PLAIN)
    full = (_barriers(STAGES, THREADS), _barriers(STAGES, THREADS))
    empty = (_barriers(STAGES, 1), _barriers(STAGES, 1))
    kept = _barriers(STAGES, 1)
    weighed = (_barriers(STAGES, 1), _barriers(STAGES, 1))
    query_bars = (_barriers(1, THREADS).index(0), _barriers(1, 1).index(0))
    final_bars = (_barriers(1, 1).index(0), _barriers(1, 2).index(0))
    first_head = head_tile * ROWS
    memory = (
        q, cache, table, num_blocks, heads, q_stride_seq, q_stride_head,
        block_stride, token_stride, table_stride, first_head,
    )  # fmt: skip
    weigh = (
        span, query, tiles, scalings, query_bars, full, kept, weighed, final_bars,
        partial_lse, lse, factor, first_head, heads,
    )  # fmt: skip
    left = (
        span, tiles[0], tiles[2], scalings, kept, weighed, empty[0], final_bars,
        partial, out, first_head, heads, 0, RANK,
    )  # fmt: skip
    right = (
        span, tiles[1], tiles[2], scalings, kept, weighed, empty[1], final_bars,
        partial, out, first_head, heads, HALF, RANK,
    )  # fmt: skip
    gl.warp_specialize(
        [
            (_weigh, weigh),
            (_sum, left),
            (_sum, right),
            (_load, (span, memory, query, tiles, query_bars, full, empty, ROWS, BLOCK_SIZE)),
        ],
        [4, 4, 4],
        [VALUE_REGS, VALUE_REGS, LOAD_REGS],
    )
