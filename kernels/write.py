"""Writing new tokens' KV into their slots, quantised on the way, and reading a range back."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvsim.errors import ConfigError

from .paged import LARGEST, PagedKV


def write_kv(keys: Tensor, values: Tensor, kv: PagedKV, slots: Tensor) -> None:
    """Store the KV of new tokens.

    ``keys`` and ``values`` are ``[tokens, kv_heads, head_dim]``; ``slots`` int ``[tokens]`` holds
    ``block * block_size + offset`` for each. A token whose slot does not exist (a padding of -1) is
    not written. 8-bit memory: divided by the static scale and clamped to what the type holds, or,
    with one scale per token and head, by the row's largest magnitude, and the scale is written too.
    """
    tokens, heads, head_dim = keys.shape
    k_scale = kv.k if kv.k_scale is None else kv.k_scale
    v_scale = kv.v if kv.v_scale is None else kv.v_scale
    if keys.stride() != values.stride() or keys.stride(2) != 1:
        raise ConfigError("new keys and values must have equal strides, the last one 1")
    _write_kernel[(tokens, 2)](
        keys, values, kv.k, kv.v, k_scale, v_scale, slots, kv.num_blocks * kv.block_size, heads,
        keys.stride(0), keys.stride(1), *kv.k.stride()[:3], *kv.scale_strides(),
        BLOCK_SIZE=kv.block_size, HEADS=triton.next_power_of_2(heads), HEAD_DIM=head_dim,
        SCALING=kv.scaling, LARGEST=LARGEST.get(kv.k.dtype, 0.0),
        INTEGER=kv.k.dtype == torch.int8, num_warps=2,
    )  # fmt: skip


@triton.jit
def _write_kernel(
    keys, values, k, v, k_scale, v_scale, slots, num_slots, heads,
    new_stride_token, new_stride_head, block_stride, token_stride, head_stride,
    scale_block, scale_token, scale_head,
    BLOCK_SIZE: tl.constexpr, HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, SCALING: tl.constexpr,
    LARGEST: tl.constexpr, INTEGER: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0)
    new, stored, scale = keys, k, k_scale
    if tl.program_id(1) == 1:
        new, stored, scale = values, v, v_scale
    slot = tl.load(slots + token).to(tl.int64)
    if (slot >= 0) & (slot < num_slots):
        block, offset = slot // BLOCK_SIZE, slot % BLOCK_SIZE
        head, dims = tl.arange(0, HEADS), tl.arange(0, HEAD_DIM)
        there = (head < heads)[:, None]
        new += token.to(tl.int64) * new_stride_token
        rows = tl.load(new + (head * new_stride_head)[:, None] + dims[None, :], mask=there)
        if SCALING > 0:
            rows = rows.to(tl.float32)
            scale_at = scale + block * scale_block + offset * scale_token + head * scale_head
            if SCALING == 2:
                divisor = tl.maximum(tl.max(tl.abs(rows), 1) / LARGEST, 1e-12)
                tl.store(scale_at, divisor, mask=head < heads)
            else:
                divisor = tl.load(scale_at, mask=head < heads, other=1.0)
            rows = tl.minimum(tl.maximum(rows / divisor[:, None], -LARGEST), LARGEST)
            if INTEGER:
                rows = tl.floor(rows + 0.5)
        into = stored + block * block_stride + offset * token_stride
        into += (head * head_stride)[:, None] + dims[None, :]
        tl.store(into, rows.to(stored.dtype.element_ty), mask=there)


def read_kv(
    kv: PagedKV, row: Tensor, start: int, stop: int, *, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Keys and values of tokens ``start`` to ``stop`` (exclusive) of a sequence, in order.

    ``row`` is the sequence's row of the block table. Returns two ``[tokens, kv_heads, head_dim]``
    tensors, scales applied; for export and verification. Blocks that do not exist read as zeros.
    """
    shape = (stop - start, kv.kv_heads, kv.head_dim)
    k_scale = kv.k if kv.k_scale is None else kv.k_scale
    v_scale = kv.v if kv.v_scale is None else kv.v_scale
    results = []
    for stored, scale in ((kv.k, k_scale), (kv.v, v_scale)):
        out = torch.empty(shape, dtype=dtype, device=row.device)
        _read_kernel[shape[:2]](
            stored, scale, row, out, start, kv.num_blocks,
            *stored.stride()[:3], *kv.scale_strides(),
            BLOCK_SIZE=kv.block_size, HEAD_DIM=kv.head_dim, SCALED=kv.scaling > 0, num_warps=1,
        )  # fmt: skip
        results.append(out)
    return results[0], results[1]


@triton.jit
def _read_kernel(
    stored, scale, table, out, start, num_blocks,
    block_stride, token_stride, head_stride, scale_block, scale_token, scale_head,
    BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    token, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    block = tl.load(table + (start + token) // BLOCK_SIZE).to(tl.int64)
    offset = (start + token) % BLOCK_SIZE
    exists = (block >= 0) & (block < num_blocks)
    dims = tl.arange(0, HEAD_DIM)
    at = block * block_stride + offset * token_stride + head * head_stride + dims
    there = dims < tl.where(exists, HEAD_DIM, 0)
    row = tl.load(stored + at, mask=there, other=0.0).to(tl.float32)
    if SCALED:
        at = block * scale_block + offset * scale_token + head * scale_head
        row *= tl.load(scale + at, mask=exists, other=0.0)
    tl.store(out + (token.to(tl.int64) * heads + head) * HEAD_DIM + dims, row)
