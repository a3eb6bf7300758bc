"""Decode over latent rows, against float64."""

from __future__ import annotations

import pytest
from inputs import DEVICE, FLOATS, NOWHERE, TOLERANCE, block_table, relative_error, torch
from kvsim.kernels import reference
from kvsim.kernels.mla import mla_decode


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("heads", [3, 16, 80])
@pytest.mark.parametrize("block_size", [1, 64])
def test_mla_decode_equals_float64_attention(
    dtype: torch.dtype, heads: int, block_size: int
) -> None:
    rank, rope, lengths = (512, 64, [700, 1, 65]) if DEVICE == "cuda" else (64, 16, [150, 1, 65])
    generator = torch.Generator().manual_seed(heads)
    table, blocks = block_table(generator, lengths, block_size)
    cache = torch.randn((blocks, block_size, rank + rope), generator=generator).to(DEVICE, dtype)
    q = torch.randn((3, heads, rank + rope), generator=generator).to(DEVICE, dtype)
    table[1, 0] = NOWHERE
    sizes = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
    scale = (rank + rope) ** -0.5
    out, lse = mla_decode(q, cache, table, sizes, rank=rank, scale=scale)
    expected, expected_lse = reference.mla_decode(q, cache, table, sizes, rank=rank, scale=scale)
    assert relative_error(out, expected) < TOLERANCE[dtype]
    assert float((lse - expected_lse).abs().max()) < 0.05
