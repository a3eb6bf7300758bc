"""Decode of sequences that share a prefix: its KV is read once for the whole batch.

As in cascade inference (Ye et al. 2024) and Hydragen (Juravsky et al. 2024): all queries attend to
the prefix together, one dense pass, each attends to its own suffix, and the two are merged.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from .decode import decode_into
from .paged import PagedKV
from .parts import merge_states, processors
from .prefill import SHORT, Tuning, prefill_into


def cascade_decode(
    q: Tensor,
    kv: PagedKV,
    prefix_table: Tensor,
    prefix_length: Tensor,
    suffix_table: Tensor,
    suffix_lengths: Tensor,
    *,
    scale: float | None = None,
    tuning: Tuning = SHORT,
) -> tuple[Tensor, Tensor]:
    """Attention of one query token per sequence over a common prefix and the sequence's own suffix.

    ``q`` is ``[batch, heads, head_dim]``; ``prefix_table`` int32 ``[1, blocks]`` and
    ``prefix_length`` int32 ``[1]`` are common to all; ``suffix_table`` int32 ``[batch, blocks]`` and
    ``suffix_lengths`` int32 ``[batch]`` count from the prefix's end. Returns output and base-2
    log-sum-exp as :func:`kvsim.kernels.decode.decode` does.
    """
    batch = q.shape[0]
    row_tiles = triton.cdiv(batch * (q.shape[1] // kv.kv_heads), tuning.rows) * kv.kv_heads
    tiles = triton.cdiv(prefix_table.shape[1] * kv.block_size, tuning.tile)
    splits = max(1, min(tiles, 2 * processors(q.device) // row_tiles))
    states = q.new_empty((splits + 1, *q.shape), dtype=torch.float32)
    logs = q.new_empty((splits + 1, *q.shape[:2]), dtype=torch.float32)
    starts = torch.arange(2, dtype=torch.int32, device=q.device) * batch
    prefill_into(
        states[:splits], logs[:splits], q, kv, prefix_table, starts, prefix_length,
        scale=scale, causal=False, tuning=tuning,
    )  # fmt: skip
    decode_into(states[splits], logs[splits], q, kv, suffix_table, suffix_lengths, scale=scale)
    out, lse = torch.empty_like(q), q.new_empty(q.shape[:2], dtype=torch.float32)
    merge_states(states, logs, out, lse)
    return out, lse
