"""What an iteration computes besides its products; here by plain torch, in :mod:`.fused` by kernels."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention
from torch.nn.functional import silu as swish

KV = Any
"""A ``kvsim.kernels.paged.PagedKV``: the keys and values of one layer."""


class Operators(Protocol):
    """The operators of a decoder on one device; tokens come first in every shape."""

    def embed(self, table: Tensor, ids: Tensor) -> Tensor:
        """Rows of an embedding."""
        ...

    def add_norm(self, x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        """Add ``x`` to the residual, in place, and normalise it."""
        ...

    def rotate(self, x: Tensor, turns: Tensor, positions: Tensor) -> None:
        """Rotary positions of heads ``[tokens, heads, dim]``, in place."""
        ...

    def gate(self, x: Tensor) -> Tensor:
        """SiLU of the first half times the second."""
        ...

    def write(self, keys: Tensor, values: Tensor, kv: KV, slots: Tensor) -> None:
        """Store new KV in its slots; a negative slot is none."""
        ...

    def decode(self, q: Tensor, kv: KV, table: Tensor, lengths: Tensor) -> Tensor:
        """Attention of one query a sequence; a length of 0 gives zeros."""
        ...

    def prompt(
        self, q: Tensor, kv: KV, table: Tensor, starts: Tensor, lengths: Tensor, longest: int
    ) -> Tensor:
        """Causal attention of each sequence's newest tokens; ``longest``: an upper bound of lengths."""
        ...

    def read(self, kv: KV, row: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
        """Keys and values ``[tokens, kv_heads, dim]`` that a row of the block table leads to."""
        ...

    def copy(self, planes: Tensor, sources: Tensor, targets: Tensor) -> None:
        """Copy blocks of ``[planes, blocks, ...]``."""
        ...

    def gather(self, planes: Tensor, blocks: Tensor, host: Tensor, rows: Tensor) -> None:
        """Copy blocks to rows of the host's memory ``[rows, planes, ...]``."""
        ...

    def scatter(self, host: Tensor, rows: Tensor, planes: Tensor, blocks: Tensor) -> None:
        """Copy rows back to blocks."""
        ...


class References:
    """The same in plain torch."""

    def embed(self, table: Tensor, ids: Tensor) -> Tensor:
        """Rows of an embedding."""
        return table[ids]

    def add_norm(self, x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        """Add and normalise."""
        residual += x
        return rms_norm(residual, weight.shape, weight, 1e-6)

    def rotate(self, x: Tensor, turns: Tensor, positions: Tensor) -> None:
        """Rotary positions, in place."""
        cos, sin = turns[positions][:, None].chunk(2, -1)
        a, b = x.chunk(2, -1)
        first, second = a * cos - b * sin, b * cos + a * sin
        a.copy_(first)
        b.copy_(second)

    def gate(self, x: Tensor) -> Tensor:
        """Activation of the MLP."""
        gates, ups = x.chunk(2, -1)
        return swish(gates) * ups

    def write(self, keys: Tensor, values: Tensor, kv: KV, slots: Tensor) -> None:
        """Store new KV, quantised on the way."""
        real = slots >= 0
        block, offset = slots[real] // kv.block_size, slots[real] % kv.block_size
        for new, stored, scale in ((keys, kv.k, kv.k_scale), (values, kv.v, kv.v_scale)):
            rows = new[real]
            if scale is not None:
                by_token = scale.dim() == 3
                own = quantiser(rows, stored.dtype) if by_token else scale.expand(rows.shape[:2])
                rows = quantised(rows, own, stored.dtype)
                if by_token:
                    scale[block, offset] = own
            stored[block, offset] = rows.to(stored.dtype)

    def decode(self, q: Tensor, kv: KV, table: Tensor, lengths: Tensor) -> Tensor:
        """Attention over what the tables lead to, padded to the longest."""
        keys, values, there = gathered(kv, table, lengths, q.dtype)
        return attended(q[:, :, None], keys, values, there[:, None, None])[:, :, 0]

    def prompt(
        self, q: Tensor, kv: KV, table: Tensor, starts: Tensor, lengths: Tensor, longest: int
    ) -> Tensor:
        """Attention prompt by prompt."""
        found = []
        for i, new in enumerate(q.split(starts.diff().tolist())):
            keys, values, _ = gathered(kv, table[i : i + 1], lengths[i : i + 1], q.dtype)
            tokens = keys.shape[2]
            causal = torch.ones(len(new), tokens, dtype=torch.bool).tril(tokens - len(new))
            found.append(attended(new.transpose(0, 1)[None], keys, values, causal)[0])
        return torch.cat(found, 1).transpose(0, 1)

    def read(self, kv: KV, row: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
        """Read a sequence's KV back."""
        lengths = torch.tensor([tokens], device=row.device)
        keys, values, _ = gathered(kv, row[None], lengths, torch.float32)
        return keys[0].transpose(0, 1), values[0].transpose(0, 1)

    def copy(self, planes: Tensor, sources: Tensor, targets: Tensor) -> None:
        """Copy blocks."""
        planes[:, targets.long()] = planes[:, sources.long()]

    def gather(self, planes: Tensor, blocks: Tensor, host: Tensor, rows: Tensor) -> None:
        """Copy blocks to the host."""
        host[rows.long()] = planes[:, blocks.long()].transpose(0, 1)

    def scatter(self, host: Tensor, rows: Tensor, planes: Tensor, blocks: Tensor) -> None:
        """Copy rows back."""
        planes[:, blocks.long()] = host[rows.long()].transpose(0, 1)


def gathered(
    kv: KV, table: Tensor, lengths: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values ``[batch, kv_heads, tokens, dim]`` up to the longest, and which tokens exist."""
    tokens = torch.arange(int(lengths.max()), device=table.device)
    there = tokens < lengths[:, None]
    block = table[:, tokens // kv.block_size].long().clamp(0, kv.num_blocks - 1)

    def rows(stored: Tensor, scale: Tensor | None) -> Tensor:
        found = stored[block, tokens % kv.block_size].to(dtype)
        if scale is not None:
            by_token = scale.dim() == 3
            found = found * (scale[block, tokens % kv.block_size] if by_token else scale)[..., None]
        return torch.where(there[..., None, None], found, 0.0).transpose(1, 2)

    return rows(kv.k, kv.k_scale), rows(kv.v, kv.v_scale), there


def attended(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Grouped-query attention; zeros where nothing is seen."""
    found = scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)
    return torch.where(mask.any(-1)[..., None], found, 0.0)


def largest(dtype: torch.dtype) -> float:
    """The largest magnitude that an 8-bit type is used for."""
    from kvsim.kernels.paged import LARGEST

    return float(LARGEST[dtype])


def quantiser(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """A scale for each token and head that uses the whole range of the type."""
    return (rows.abs().amax(-1).float() / largest(dtype)).clamp_min(1e-12)


def quantised(rows: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows ``[tokens, heads, dim]`` over their scales ``[tokens, heads]``, in the range of the type."""
    bound = largest(dtype)
    found = (rows.float() / scale[..., None]).clamp(-bound, bound)
    return (found + 0.5).floor() if dtype == torch.int8 else found
