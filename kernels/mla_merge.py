"""Merge of MLA's segments: rows are wide and many, so a program takes some heads at a time."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .parts import batch_bound, slots_of


@triton.jit(do_not_specialize=["batch", "parts"])
def _merge_kernel(
    partial, partial_lse, lengths, out, lse, batch, parts, heads,
    TILE: tl.constexpr, BATCH: tl.constexpr, SEGMENTS: tl.constexpr, HEADS: tl.constexpr,
    RANK: tl.constexpr, CHUNK: tl.constexpr, SETTLED: tl.constexpr,
):  # fmt: skip
    seq = tl.program_id(1)
    head = tl.program_id(0) * HEADS + tl.arange(0, HEADS)
    seqs, dims = tl.arange(0, BATCH), tl.program_id(2) * CHUNK + tl.arange(0, CHUNK)
    first, last = slots_of(lengths, seq, seqs, batch, parts, 0, TILE)
    present = head < heads
    if SETTLED:
        present = head < tl.where(first == last, 0, heads)
        last = tl.where(first == last, first - 1, last)
    top = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    acc = tl.zeros([HEADS, CHUNK], tl.float32)
    for start in range(first, last + 1, SEGMENTS):
        slots = start + tl.arange(0, SEGMENTS)
        inside = (slots <= last)[:, None] & present[None, :]
        rows = slots.to(tl.int64)[:, None] * heads + head[None, :]
        logs = tl.load(partial_lse + rows, mask=inside, other=float("-inf"))
        new_top = tl.maximum(top, tl.max(logs, 0))
        ground = tl.where(new_top > float("-inf"), new_top, 0.0)
        weight, keep = tl.exp2(logs - ground[None, :]), tl.exp2(top - ground)
        at = partial + rows[:, :, None] * RANK + dims[None, None, :]
        found = tl.load(at, mask=inside[:, :, None], other=0.0)
        acc = acc * keep[:, None] + tl.sum(found * weight[:, :, None], 0)
        total = total * keep + tl.sum(weight, 0)
        top = new_top
    divisor = tl.where(total > 0, total, 1.0)
    rows = seq.to(tl.int64) * heads + head
    tl.store(
        out + rows[:, None] * RANK + dims[None, :], acc / divisor[:, None], mask=present[:, None]
    )
    log = tl.where(total > 0, top + tl.log2(divisor), float("-inf"))
    tl.store(lse + rows, log, mask=present)


def merge_latents(
    partial: Tensor,
    partial_lse: Tensor,
    lengths: Tensor,
    *,
    parts: int,
    tile: int,
    into: tuple[Tensor, Tensor],
    settled: bool,
) -> None:
    """Combine the segments of every sequence, as :func:`kvsim.kernels.parts.merge_parts` does.

    ``into`` is contiguous: ``[batch, heads, rank]`` and its log2-sum-exp ``[batch, heads]``. Where
    sequences of a single segment are ``settled``, their results are there already and are left
    alone.
    """
    out, lse = into
    batch, heads, rank = out.shape
    rows = batch * heads
    chunk = min(rank, 128) if rows <= 256 else rank
    group = 1 if rows < 1024 else 2 if rows < 2048 else 4
    segments = triton.next_power_of_2(min(8192 // (chunk * group), parts // batch + 2))
    _merge_kernel[(triton.cdiv(heads, group), batch, rank // chunk)](
        partial, partial_lse, lengths, out, lse, batch, parts, heads,
        TILE=tile, BATCH=batch_bound(batch), SEGMENTS=segments, HEADS=group,
        RANK=rank, CHUNK=chunk, SETTLED=settled, num_warps=4,
    )  # fmt: skip
