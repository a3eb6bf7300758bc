"""Split-KV: an even division of a batch's KV tiles over programs, and the merge of what they find.

The tiles of all sequences form one line, sequence after sequence. Each of ``parts`` programs takes
an equal stretch of it, whatever the lengths, so a skewed batch costs no more than its bytes. A
program's stretch within one sequence is a *segment*; part ``p`` leaves its result for sequence
``s`` in slot ``p + s``: along the line either number grows, so no two segments share a slot.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


def split_count(heads: int, tiles: int, resident: int) -> int:
    """Programs along the line of at most ``tiles`` tiles, for each of ``heads`` kv heads.

    One wave of the ``resident`` programs that run at a time: each has an equal share of the bytes,
    and on the H200 more and smaller shares were slower.
    """
    return max(1, min(tiles, resident // heads))


def batch_bound(batch: int) -> int:
    """The batch size that a kernel is compiled for: few, so that few are compiled."""
    return max(128, triton.next_power_of_2(batch))


def processors(device: torch.device) -> int:
    """Streaming multiprocessors of the device; 4 stand in for them without a GPU."""
    if device.type != "cuda":
        return 4
    return torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit
def tile_counts(lengths, seqs, batch, WINDOW: tl.constexpr, TILE: tl.constexpr):
    """Tiles of KV that each sequence attends to, and the first of them."""
    length = tl.load(lengths + seqs, mask=seqs < batch, other=0)
    first = tl.zeros_like(length)
    if WINDOW > 0:
        first = tl.maximum(length - WINDOW, 0) // TILE
    return tl.cdiv(length, TILE) - first, first


@triton.jit
def pick(values, seqs, seq):
    """``values[seq]`` of a vector in registers."""
    return tl.sum(tl.where(seqs == seq, values, 0))


@triton.jit
def slots_of(lengths, seq, seqs, batch, parts, WINDOW: tl.constexpr, TILE: tl.constexpr):
    """First and last slot of a sequence's segments; the last comes before the first if it has none."""
    tiles, _ = tile_counts(lengths, seqs, batch, WINDOW, TILE)
    share = tl.maximum(tl.cdiv(tl.sum(tiles), parts), 1)
    begin = tl.sum(tl.where(seqs < seq, tiles, 0))
    count = pick(tiles, seqs, seq)
    first = begin // share + seq
    return first, tl.where(count > 0, (begin + count - 1) // share + seq, first - 1)


@triton.jit(do_not_specialize=["batch", "parts"])
def _merge_kernel(
    partial, partial_lse, lengths, out, lse,
    out_stride_seq, out_stride_head, batch, parts, heads,
    WINDOW: tl.constexpr, TILE: tl.constexpr, BATCH: tl.constexpr, SEGMENTS: tl.constexpr,
    HEAD_DIM: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    head, seq, chunk = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    seqs, dims = tl.arange(0, BATCH), chunk * CHUNK + tl.arange(0, CHUNK)
    first, last = slots_of(lengths, seq, seqs, batch, parts, WINDOW, TILE)
    top = float("-inf")
    total = 0.0
    acc = tl.zeros([CHUNK], tl.float32)
    for start in range(first, last + 1, SEGMENTS):
        slots = start + tl.arange(0, SEGMENTS)
        rows = slots.to(tl.int64) * heads + head
        logs = tl.load(partial_lse + rows, mask=slots <= last, other=float("-inf"))
        new_top = tl.maximum(top, tl.max(logs, 0))
        weight = tl.exp2(logs - new_top)
        keep = tl.exp2(top - new_top)
        found = tl.load(
            partial + rows[:, None] * HEAD_DIM + dims[None, :],
            mask=(slots <= last)[:, None],
            other=0.0,
        )
        acc = acc * keep + tl.sum(found * weight[:, None], 0)
        total = total * keep + tl.sum(weight, 0)
        top = new_top
    result = acc / tl.where(total > 0, total, 1.0)
    tl.store(out + seq * out_stride_seq + head * out_stride_head + dims, result)
    log = tl.where(total > 0, top + tl.log2(total), float("-inf"))
    tl.store(lse + seq * heads + head, log, mask=chunk == 0)


def merge_parts(
    partial: Tensor,
    partial_lse: Tensor,
    lengths: Tensor,
    out: Tensor,
    lse: Tensor,
    *,
    parts: int,
    window: int,
    tile: int,
) -> None:
    """Combine the segments of every sequence: softmax-weighted by their log2-sum-exp.

    ``partial`` is ``[slots, heads, head_dim]`` and ``partial_lse`` ``[slots, heads]``, float32;
    ``out`` ``[batch, heads, head_dim]`` and ``lse`` ``[batch, heads]`` are written. A sequence of
    length 0 gets zeros and minus infinity. Few wide rows are cut into chunks of dims, to fill the
    machine; many are not, since every program finds the segments anew.
    """
    batch, heads, head_dim = out.shape
    chunk = min(head_dim, 128) if batch * heads <= 256 else head_dim
    segments = triton.next_power_of_2(min(8192 // chunk, parts // batch + 2))
    _merge_kernel[(heads, batch, head_dim // chunk)](
        partial, partial_lse, lengths, out, lse,
        out.stride(0), out.stride(1), batch, parts, heads,
        WINDOW=window, TILE=tile, BATCH=batch_bound(batch), SEGMENTS=segments,
        HEAD_DIM=head_dim, CHUNK=chunk, num_warps=4,
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows", "states"])
def _merge_states_kernel(
    partial, partial_lse, out, lse, rows, states, HEAD_DIM: tl.constexpr, ROWS: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    dims = tl.arange(0, HEAD_DIM)
    inside = row < rows
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, HEAD_DIM], tl.float32)
    for state in range(states):
        at = row.to(tl.int64) + state * rows
        log = tl.load(partial_lse + at, mask=inside, other=float("-inf"))
        new_top = tl.maximum(top, log)
        ground = tl.where(new_top > float("-inf"), new_top, 0.0)
        keep, weight = tl.exp2(top - ground), tl.exp2(log - ground)
        found = tl.load(
            partial + at[:, None] * HEAD_DIM + dims[None, :], mask=inside[:, None], other=0.0
        )
        acc = acc * keep[:, None] + found * weight[:, None]
        total = total * keep + weight
        top = new_top
    result = acc / tl.where(total > 0, total, 1.0)[:, None]
    into = out + row.to(tl.int64)[:, None] * HEAD_DIM + dims[None, :]
    tl.store(into, result, mask=inside[:, None])
    tl.store(lse + row, tl.where(total > 0, top + tl.log2(total), float("-inf")), mask=inside)


def merge_states(partial: Tensor, partial_lse: Tensor, out: Tensor, lse: Tensor) -> None:
    """Attention over the union of disjoint sets of keys, from the attention over each.

    ``partial`` ``[sets, ..., head_dim]`` and ``partial_lse`` ``[sets, ...]`` are contiguous float32;
    ``out`` ``[..., head_dim]`` and ``lse`` ``[...]`` are written. A set may be empty (-inf).
    """
    rows = lse.numel()
    _merge_states_kernel[(triton.cdiv(rows, 8),)](
        partial, partial_lse, out, lse, rows, partial.shape[0], HEAD_DIM=out.shape[-1], ROWS=8
    )
