"""Decode over latent rows, against float64."""

from __future__ import annotations

import pytest
from inputs import DEVICE, FLOATS, NOWHERE, TOLERANCE, block_table, relative_error, torch
from kvsim.kernels import reference
from kvsim.kernels.mla import _whole_shares, mla_decode
from kvsim.kernels.mla_merge import merge_latents


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


def test_a_settled_sequence_keeps_its_result_and_a_divided_one_is_merged() -> None:
    generator = torch.Generator().manual_seed(0)
    partial = torch.randn((4, 3, 16), generator=generator).to(DEVICE)
    logs = torch.randn((4, 3), generator=generator).to(DEVICE)
    lengths = torch.tensor([64, 200], dtype=torch.int32, device=DEVICE)
    out, lse = torch.full((2, 3, 16), 7.0, device=DEVICE), torch.full((2, 3), 7.0, device=DEVICE)
    merge_latents(partial, logs, lengths, parts=2, tile=64, into=(out, lse), settled=True)
    assert bool((out[0] == 7).all())
    assert bool((lse[0] == 7).all())
    weights = torch.softmax(logs[1:3] * 0.6931471805599453, 0)
    assert relative_error(out[1], (weights[..., None] * partial[1:3]).sum(0)) < 1e-5
    assert relative_error(lse[1], torch.log2(torch.exp2(logs[1:3]).sum(0))) < 1e-5


def test_a_sequence_of_more_segments_than_a_program_takes_at_a_time_is_merged_in_rounds() -> None:
    generator = torch.Generator().manual_seed(1)
    partial = torch.randn((16, 2, 16), generator=generator).to(DEVICE)
    logs = (4 * torch.randn((16, 2), generator=generator)).to(DEVICE)
    lengths = torch.tensor([512, *[0] * 7], dtype=torch.int32, device=DEVICE)
    out, lse = torch.empty((8, 2, 16), device=DEVICE), torch.empty((8, 2), device=DEVICE)
    merge_latents(partial, logs, lengths, parts=8, tile=64, into=(out, lse), settled=False)
    weights = torch.softmax(logs[:8] * 0.6931471805599453, 0)
    assert relative_error(out[0], (weights[..., None] * partial[:8]).sum(0)) < 1e-5
    assert relative_error(lse[0], torch.log2(torch.exp2(logs[:8]).sum(0))) < 1e-5
    assert not out[1:].any()


@pytest.mark.parametrize(
    ("parts", "batch", "expected"), [(66, 128, 64), (132, 128, 128), (66, 32, 64), (66, 100, 66)]
)
def test_few_programs_are_given_up_for_whole_shares(parts: int, batch: int, expected: int) -> None:
    assert _whole_shares(parts, batch) == expected
