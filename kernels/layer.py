"""What lies between the products of a layer, fused as serving engines fuse it."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

WIDTH = 512
"""Elements that a program of an elementwise kernel takes."""
EPSILON = 1e-6


def add_norm(x: Tensor, residual: Tensor, weight: Tensor, out: Tensor) -> None:
    """``residual += x; out = rms_norm(residual) * weight``; all ``[tokens, width]``, weight ``[width]``."""
    tokens, width = x.shape
    size = triton.next_power_of_2(width)
    warps = 16 if size >= 8192 else 8 if size >= 2048 else 4
    _norm_kernel[(tokens,)](
        x, residual, weight, out, width, EPSILON=EPSILON, SIZE=size, num_warps=warps
    )


@triton.jit
def _norm_kernel(x, residual, weight, out, width, EPSILON: tl.constexpr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    inside = at < width
    row = tl.program_id(0).to(tl.int64) * width
    total = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(residual + row + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(residual + row + at, total, mask=inside)
    norm = tl.rsqrt(tl.sum(total * total) / width + EPSILON)
    scaled = total * norm * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + at, scaled, mask=inside)


def rotate(x: Tensor, turns: Tensor, positions: Tensor) -> None:
    """Apply rotary positions to heads in place.

    ``x`` ``[tokens, heads, dim]``, heads next to one another; ``turns`` ``[positions, dim]``: cosines,
    then sines, of ``dim / 2`` angles; ``positions`` int ``[tokens]``.
    """
    tokens, heads, dim = x.shape
    _rope_kernel[(tokens, triton.cdiv(heads, 8))](
        x, turns, positions, heads, x.stride(0), HEADS=8, HALF=dim // 2, num_warps=4
    )


@triton.jit
def _rope_kernel(x, turns, positions, heads, stride, HEADS: tl.constexpr, HALF: tl.constexpr):
    token, half = tl.program_id(0), tl.arange(0, HALF)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    angle = turns + tl.load(positions + token) * 2 * HALF + half
    cos, sin = tl.load(angle).to(tl.float32), tl.load(angle + HALF).to(tl.float32)
    first = x + token.to(tl.int64) * stride + head[:, None] * 2 * HALF + half[None, :]
    inside = (head < heads)[:, None]
    a = tl.load(first, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(first + HALF, mask=inside, other=0.0).to(tl.float32)
    tl.store(first, a * cos[None, :] - b * sin[None, :], mask=inside)
    tl.store(first + HALF, b * cos[None, :] + a * sin[None, :], mask=inside)


def silu(x: Tensor, out: Tensor) -> None:
    """``out = silu(x[:, :width]) * x[:, width:]``."""
    tokens, width = out.shape
    _silu_kernel[(tokens, triton.cdiv(width, WIDTH))](x, out, width, SIZE=WIDTH, num_warps=4)


@triton.jit
def _silu_kernel(x, out, width, SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inside = at < width
    gate = tl.load(x + row * 2 * width + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * width + width + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + at, gate / (1 + tl.exp(-gate)) * up, mask=inside)


def embed(table: Tensor, ids: Tensor, out: Tensor) -> None:
    """``out[i] = table[ids[i]]``."""
    tokens, width = out.shape
    _row_kernel[(tokens, triton.cdiv(width, WIDTH))](
        table, ids, out, width, SIZE=WIDTH, num_warps=4
    )


@triton.jit
def _row_kernel(table, ids, out, width, SIZE: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    row = tl.load(
        table + tl.load(ids + token).to(tl.int64) * width + at, mask=at < width, other=0.0
    )
    tl.store(out + token * width + at, row, mask=at < width)
