"""The KV memory of one layer as blocks, and the addressing that every kernel shares."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvsim.errors import ConfigError

EIGHT_BIT = (torch.float8_e4m3fn, torch.int8)
LARGEST = {torch.float8_e4m3fn: 448.0, torch.int8: 127.0}
"""Largest magnitude that an 8-bit KV type is used for."""
LOG2_E = 1.4426950408889634
"""Kernels work with powers of 2; scores are multiplied by this."""


@dataclass(frozen=True, slots=True)
class PagedKV:
    """Keys and values of one layer; ``block_table[s, i]`` names the block of logical block ``i``.

    ``k`` and ``v`` are ``[num_blocks, block_size, kv_heads, head_dim]`` with equal strides, the last
    one 1. The true value of an 8-bit entry is ``scale * stored``, with scales in float32 of shape
    ``[kv_heads]`` (static) or ``[num_blocks, block_size, kv_heads]`` (one per token and head).

    A block whose id lies outside ``[0, num_blocks)`` is never read: its tokens count as zeros.
    """

    k: Tensor
    v: Tensor
    k_scale: Tensor | None = None
    v_scale: Tensor | None = None

    def __post_init__(self) -> None:
        if self.k.shape != self.v.shape or self.k.stride() != self.v.stride():
            raise ConfigError("keys and values must have equal shapes and strides")
        least = 32 if self.k.dtype in EIGHT_BIT else 16
        if self.head_dim < least or self.head_dim & (self.head_dim - 1) or self.k.stride(3) != 1:
            raise ConfigError(
                f"head_dim is {self.head_dim}, stride {self.k.stride(3)}: {self.k.dtype} KV needs a"
                f" power of two, {least} or more, and stride 1"
            )
        if (self.k.dtype in EIGHT_BIT) != (self.k_scale is not None and self.v_scale is not None):
            raise ConfigError(f"{self.k.dtype} KV: 8-bit types need two scales, others none")

    @property
    def num_blocks(self) -> int:
        return self.k.shape[0]

    @property
    def block_size(self) -> int:
        """Tokens a block."""
        return self.k.shape[1]

    @property
    def kv_heads(self) -> int:
        return self.k.shape[2]

    @property
    def head_dim(self) -> int:
        return self.k.shape[3]

    @property
    def scaling(self) -> int:
        """0 without scales, 1 with one per head, 2 with one per token and head."""
        return 0 if self.k_scale is None else 1 if self.k_scale.dim() == 1 else 2

    def scale_strides(self) -> tuple[int, int, int]:
        """Strides of a scale over block, token and head."""
        if self.k_scale is None:
            return (0, 0, 0)
        strides = self.k_scale.stride()
        return (0, 0, strides[0]) if len(strides) == 1 else (strides[0], strides[1], strides[2])

    def operands(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Keys, values and scales as kernels take them: 8-bit rows as 16-bit words, two dims each.

        Without scales the keys stand in for them and are not read.
        """
        if self.k_scale is None or self.v_scale is None:
            return self.k, self.v, self.k, self.k
        return self.k.view(torch.int16), self.v.view(torch.int16), self.k_scale, self.v_scale

    def regions(self, length: int) -> PagedKV:
        """The same memory for a contiguous or buddy allocator: a table of one column.

        A "block" of the result is any run of ``length`` slots and its id is its first slot, so a
        sequence's table is ``[[first_slot]]`` and the kernels stay the same. Needs memory whose
        blocks follow one another without a gap.
        """
        if self.k.stride(0) != self.block_size * self.k.stride(1) or self.scaling == 2:
            raise ConfigError("regions need gapless [slot, head, dim] memory and no token scales")
        slots = self.num_blocks * self.block_size
        slot, head = self.k.stride(1), self.k.stride(2)
        shape = (slots - length + 1, length, self.kv_heads, self.head_dim)
        k, v = (x.as_strided(shape, (slot, slot, head, 1)) for x in (self.k, self.v))
        return PagedKV(k, v, self.k_scale, self.v_scale)


def empty_kv(
    num_blocks: int,
    block_size: int,
    kv_heads: int,
    head_dim: int,
    *,
    dtype: torch.dtype = torch.bfloat16,
    token_scales: bool = False,
    device: str = "cuda",
) -> PagedKV:
    """Uninitialised memory of ``num_blocks`` blocks; 8-bit types get scales of 1."""
    shape = (2, num_blocks, block_size, kv_heads, head_dim)
    k, v = torch.empty(shape, dtype=dtype, device=device)
    if dtype not in EIGHT_BIT:
        return PagedKV(k, v)
    scales = torch.ones((2, *shape[1:4]) if token_scales else (2, kv_heads), device=device)
    return PagedKV(k, v, scales[0], scales[1])


@triton.jit
def blocks_of(table, tokens, inside, BLOCK_SIZE: tl.constexpr):
    """Ids of the tokens' blocks; -1 for tokens that are not ``inside``."""
    return tl.load(table + tokens // BLOCK_SIZE, mask=inside, other=-1)


@triton.jit
def rows_of(block, tokens, num_blocks, block_stride, token_stride, BLOCK_SIZE: tl.constexpr):
    """Offsets of the tokens' rows in block memory, and which of them may be read.

    Strides are multiples of 16 elements, so 32-bit arithmetic in that unit reaches 2**35 elements.
    """
    unit: tl.constexpr = 16
    row = block * (block_stride // unit) + (tokens % BLOCK_SIZE) * (token_stride // unit)
    return row.to(tl.int64) * unit, (block >= 0) & (block < num_blocks)


@triton.jit
def scales_of(
    scale, block, tokens, valid, block_stride, token_stride, head_offset, BLOCK_SIZE: tl.constexpr
):
    """One scale per token; 1 where nothing may be read."""
    at = block.to(tl.int64) * block_stride + (tokens % BLOCK_SIZE) * token_stride + head_offset
    return tl.load(scale + at, mask=valid, other=1.0)
