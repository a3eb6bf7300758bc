"""The inputs of what is timed: KV memory and block tables, more of them than the cache holds."""

from __future__ import annotations

import math

import torch

from .paged import EIGHT_BIT, PagedKV, empty_kv

DEVICE = "cuda"
ROTATION = 300e6
"""Bytes that a point's inputs take together: several times an L2 of 60 MB."""
DTYPES = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn, "int8": torch.int8}


def memory(tokens: int, block_size: int, dtype: str, *, token_scales: bool = False) -> PagedKV:
    """KV memory of random numbers for 8 kv heads of 128."""
    kv = empty_kv(
        -(-tokens // block_size), block_size, 8, 128, dtype=DTYPES[dtype], token_scales=token_scales
    )
    for stored, scale in ((kv.k, kv.k_scale), (kv.v, kv.v_scale)):
        normal = torch.empty(stored.shape, dtype=torch.bfloat16, device=DEVICE)
        stored.copy_(normal.normal_(0, 30 if stored.dtype in EIGHT_BIT else 1))
        if scale is not None:
            scale.uniform_(0.01, 0.02)
    return kv


def tables(kv: PagedKV, lengths: list[int], size: float) -> list[torch.Tensor]:
    """Block tables of random blocks, disjoint, as many as it takes to outgrow the cache."""
    counts = [-(-n // kv.block_size) for n in lengths]
    sets = max(1, min(48, math.ceil(ROTATION / size), kv.num_blocks // sum(counts)))
    shuffled = torch.randperm(kv.num_blocks, device=DEVICE).int()
    found = []
    for chunk in shuffled.split(sum(counts))[:sets]:
        table = torch.zeros((len(lengths), max(counts)), dtype=torch.int32, device=DEVICE)
        for row, blocks in zip(table, chunk.split(counts), strict=True):
            row[: len(blocks)] = blocks
        found.append(table)
    return found
