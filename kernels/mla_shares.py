"""Which tokens of which sequences a program of MLA's kernel for Hopper has."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

LINE = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))


@gluon.jit
def _add(a, b):
    return a + b


@gluon.jit
def span_of(lengths, batch, part, parts, TILE: gl.constexpr, BATCH: gl.constexpr):
    """A program's stretch of the line of tiles: first and last sequence, and where in them."""
    seqs = gl.arange(0, BATCH, layout=LINE)
    counts = (gl.load(lengths + seqs, mask=seqs < batch, other=0) + TILE - 1) // TILE
    ends = gl.associative_scan(counts, 0, _add)
    total = gl.sum(counts, 0)
    share = (total + parts - 1) // parts
    begin = gl.minimum(part * share, total)
    end = gl.minimum(begin + share, total)
    first_seq = gl.sum((ends <= begin).to(gl.int32), 0)
    stop_seq = gl.where(begin < end, gl.sum((ends < end).to(gl.int32), 0) + 1, 0)
    low = (begin - gl.sum(gl.where(seqs < first_seq, counts, 0), 0)) * TILE
    high = (end - gl.sum(gl.where(seqs < stop_seq - 1, counts, 0), 0)) * TILE
    return lengths, first_seq, stop_seq, low, high, part


@gluon.jit
def segment_of(span, seq, TILE: gl.constexpr):
    """This program's tokens ``[low, high)`` of a sequence, where their last tile starts, and
    whether they are all that the sequence has. No tokens count as one tile of nothing.

    Worked out from ``seq`` alone: carried from one sequence to the next, such bounds kept their first
    values in two of the groups (Triton 3.6).
    """
    length = gl.load(span[0] + seq)
    low = gl.where(seq == span[1], span[3], 0)
    high = gl.where(seq == span[2] - 1, gl.minimum(length, span[4]), length)
    last = low + (gl.maximum(high - low, 1) - 1) // TILE * TILE
    return low, high, last, (low == 0) & (high == length)
