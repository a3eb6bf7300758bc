"""What lies between a layer's products, against float64."""

from __future__ import annotations

import pytest
from inputs import DEVICE, TOLERANCE, relative_error, torch
from kvsim.kernels.layer import add_norm, embed, rotate, silu

DTYPES = [torch.float32, torch.float16]
WIDTHS = pytest.mark.parametrize("width", [64, 1000])
"""One of whole programs and one that no program's size divides."""
TYPES = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def random(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Normally distributed numbers, the same ones in every run."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype).to(DEVICE)


def poisoned(like: torch.Tensor, *shape: int) -> torch.Tensor:
    """Memory in which what is not written is NaN."""
    return like.new_full(shape, torch.nan)


@TYPES
@WIDTHS
def test_a_norm_is_of_the_sum_with_the_residual_which_it_keeps(
    dtype: torch.dtype, width: int
) -> None:
    x, weight = random(dtype, 5, width), random(dtype, width)
    residual = random(dtype, 5, width) + 1
    total = x.double() + residual.double()
    out = poisoned(x, 5, width)
    add_norm(x, residual, weight, out)
    mean = total.square().mean(-1, keepdim=True)
    assert relative_error(residual, total) < TOLERANCE[dtype]
    assert relative_error(out, total * (mean + 1e-6).rsqrt() * weight.double()) < TOLERANCE[dtype]


@TYPES
@pytest.mark.parametrize("heads", [1, 11])
def test_heads_are_turned_by_the_angles_of_their_positions(dtype: torch.dtype, heads: int) -> None:
    wide = random(dtype, 4, heads + 3, 32)  # as queries lie beside keys: rows are further apart
    x, positions = wide[:, :heads], torch.tensor([7, 0, 3, 3], device=DEVICE)
    angles = random(torch.float32, 8, 16)
    turns = torch.cat([angles.cos(), angles.sin()], -1).to(dtype)
    cos, sin = (part.double()[positions][:, None] for part in turns.split(16, -1))
    first, second = x.double().split(16, -1)
    expected = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    beside = wide[:, heads:].clone()
    rotate(x, turns, positions)
    assert relative_error(x, expected) < TOLERANCE[dtype]
    assert torch.equal(wide[:, heads:], beside)


@TYPES
@WIDTHS
def test_the_first_half_gates_the_second(dtype: torch.dtype, width: int) -> None:
    x = random(dtype, 3, 2 * width)
    out = poisoned(x, 3, width)
    silu(x, out)
    gate, up = x.double().split(width, -1)
    assert relative_error(out, torch.nn.functional.silu(gate) * up) < TOLERANCE[dtype]


@TYPES
@WIDTHS
def test_tokens_take_their_rows_of_a_table(dtype: torch.dtype, width: int) -> None:
    table, ids = random(dtype, 9, width), torch.tensor([8, 0, 8], device=DEVICE)
    out = poisoned(table, 3, width)
    embed(table, ids, out)
    assert torch.equal(out, table[ids])
