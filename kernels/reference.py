"""What the kernels compute, in plain torch and float64: slow, short, and the tests' judge."""

from __future__ import annotations

import torch
from torch import Tensor

from .paged import PagedKV


def read(kv: PagedKV, row: Tensor, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Keys and values of tokens ``start`` to ``stop`` of a sequence, ``[tokens, kv_heads, dim]``.

    ``row`` is the sequence's row of the block table; blocks that do not exist read as zeros.
    """
    tokens = torch.arange(start, stop, device=row.device)
    block, offset = row[tokens // kv.block_size].long(), tokens % kv.block_size
    real = (block >= 0) & (block < kv.num_blocks)
    block = block.clamp(0, kv.num_blocks - 1)

    def rows(stored: Tensor, scale: Tensor | None) -> Tensor:
        values = stored[block, offset].double()
        if scale is not None:
            values *= (scale if scale.dim() == 1 else scale[block, offset]).double()[..., None]
        return torch.where(real[:, None, None], values, 0.0)

    return rows(kv.k, kv.k_scale), rows(kv.v, kv.v_scale)


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, window: int = 0, causal: bool = True
) -> tuple[Tensor, Tensor]:
    """Attention of the last ``q.shape[0]`` tokens of a sequence over all of it.

    ``q`` ``[new, heads, dim]``, ``k`` ``[tokens, kv_heads, dim]``, ``v`` ``[tokens, kv_heads, any]``.
    Returns the output and the base-2 log-sum-exp ``[new, heads]``.
    """
    new, tokens, group = q.shape[0], k.shape[0], q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * scale
    query_at = torch.arange(tokens - new, tokens, device=q.device)[:, None]
    key_at = torch.arange(tokens, device=q.device)[None, :]
    if causal:
        scores.masked_fill_(key_at > query_at, -torch.inf)
    if window:
        scores.masked_fill_(key_at <= query_at - window, -torch.inf)
    out = torch.einsum("hqk,khd->qhd", scores.softmax(-1).nan_to_num(0.0), v)
    return out, (scores.logsumexp(-1) / torch.log(torch.tensor(2.0))).T


def decode(
    q: Tensor, kv: PagedKV, block_table: Tensor, lengths: Tensor, *, scale: float, window: int = 0
) -> tuple[Tensor, Tensor]:
    """One new token per sequence: see :func:`kvsim.kernels.decode.decode`."""
    results = [
        attention(q[s : s + 1], *read(kv, block_table[s], 0, int(n)), scale=scale, window=window)
        for s, n in enumerate(lengths)
    ]
    return torch.cat([out for out, _ in results]), torch.cat([lse for _, lse in results])


def prefill(
    q: Tensor,
    kv: PagedKV,
    block_table: Tensor,
    starts: Tensor,
    lengths: Tensor,
    *,
    scale: float,
    window: int = 0,
    causal: bool = True,
) -> tuple[Tensor, Tensor]:
    """New tokens of several sequences: see :func:`kvsim.kernels.prefill.prefill`."""
    results = []
    for s, n in enumerate(lengths):
        new = q[int(starts[s]) : int(starts[s + 1])]
        k, v = read(kv, block_table[s], 0, int(n))
        results.append(attention(new, k, v, scale=scale, window=window, causal=causal))
    return torch.cat([out for out, _ in results]), torch.cat([lse for _, lse in results])


def mla_decode(
    q: Tensor, cache: Tensor, block_table: Tensor, lengths: Tensor, *, rank: int, scale: float
) -> tuple[Tensor, Tensor]:
    """One new token per sequence over latent rows: see :func:`kvsim.kernels.mla.mla_decode`."""
    outs, lses = [], []
    for s, n in enumerate(lengths):
        tokens = torch.arange(int(n), device=q.device)
        block = block_table[s, tokens // cache.shape[1]].long()
        real = (block >= 0) & (block < cache.shape[0])
        rows = cache[block.clamp(0, cache.shape[0] - 1), tokens % cache.shape[1]].double()
        rows = torch.where(real[:, None], rows, 0.0)[:, None, :]
        out, lse = attention(q[s : s + 1], rows, rows[..., :rank], scale=scale)
        outs.append(out)
        lses.append(lse)
    return torch.cat(outs), torch.cat(lses)
