"""Writing, reading back, copying and moving KV."""

from __future__ import annotations

import pytest
from inputs import DEVICE, paged, relative_error, torch
from kvsim.kernels import reference
from kvsim.kernels.move import copy_blocks, gather_blocks, load, offload, scatter_blocks
from kvsim.kernels.paged import LARGEST, empty_kv
from kvsim.kernels.write import read_kv, write_kv

from kvsim.errors import ConfigError

ROUNDING = {torch.float32: 0.0, torch.float16: 2**-11, torch.float8_e4m3fn: 2**-4, torch.int8: None}
"""Largest relative error of one number in range; int8 has an absolute one, half its scale."""


SUBNORMAL = 2**-6
"""Below it float8-e4m3 has steps of one size, an eighth of it."""


def random(seed: int, *shape: int) -> torch.Tensor:
    """Normally distributed numbers, the same ones in every run."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def misrounded(stored: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Numbers that Triton's interpreter, not a GPU, rounds wrongly to float8.

    It loses the carry of those that round up to a power of two, and cuts subnormal ones off.
    """
    if DEVICE == "cuda" or dtype != torch.float8_e4m3fn:
        return torch.zeros_like(stored, dtype=torch.bool)
    rounded = stored.to(dtype).float().abs()
    mantissa, _ = torch.frexp(rounded)
    return (stored.abs() < rounded) & ((mantissa == 0.5) | (rounded < SUBNORMAL))


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("token_scales", [False, True], ids=["head-scales", "token-scales"])
@pytest.mark.parametrize("seed", [0, 7, 97])
def test_what_is_written_reads_back_within_the_rounding_of_its_type(
    dtype: torch.dtype, token_scales: bool, seed: int
) -> None:
    kv = empty_kv(6, 16, 2, 32, dtype=dtype, token_scales=token_scales, device=DEVICE)
    if kv.k_scale is not None and kv.v_scale is not None:
        kv.k_scale.fill_(0.04), kv.v_scale.fill_(0.04)
    table = torch.tensor([4, 0, 5], dtype=torch.int32, device=DEVICE)
    tokens = torch.arange(40, device=DEVICE)
    slots = table[tokens // 16] * 16 + tokens % 16
    keys, values = random(seed, 2, 40, 2, 32)
    write_kv(keys, values, kv, slots)
    for found, wanted in zip(read_kv(kv, table, 0, 40), (keys, values), strict=True):
        rounding = ROUNDING[dtype]
        largest = LARGEST.get(dtype, 25.0)
        scale = wanted.abs().amax(-1, keepdim=True) / largest if token_scales else 0.04
        slack = 0.5001 * scale if rounding is None else wanted.abs() * rounding + scale * 2**-10
        wrong = (found - wanted).abs() > slack
        assert not (wrong & ~misrounded(wanted / scale, dtype)).any()


def test_numbers_too_large_for_8_bits_are_clamped_to_the_largest() -> None:
    kv = empty_kv(1, 16, 1, 32, dtype=torch.float8_e4m3fn, device=DEVICE)
    row = torch.full((1, 1, 32), 1e6, device=DEVICE)
    write_kv(row, -row, kv, torch.tensor([3], device=DEVICE))
    assert (kv.k[0, 3].float() == 448).all()
    assert (kv.v[0, 3].float() == -448).all()


def test_a_padding_slot_is_not_written() -> None:
    kv = empty_kv(2, 16, 2, 32, dtype=torch.float32, device=DEVICE)
    kv.k.fill_(7), kv.v.fill_(7)
    rows = random(0, 3, 2, 32)
    write_kv(rows, rows, kv, torch.tensor([-1, 32, 5], device=DEVICE))
    assert torch.equal(kv.k[0, 5], rows[2])
    assert int((kv.k != 7).any(-1).any(-1).sum()) == 1


def test_any_range_of_a_sequence_reads_back_through_its_table() -> None:
    case = paged(1, [90, 50], kv_dtype=torch.int8, token_scales=True)
    case.table[1, 2] = -5
    for start, stop in ((0, 50), (15, 17), (31, 48)):
        expected = reference.read(case.kv, case.table[1], start, stop)
        for found, wanted in zip(
            read_kv(case.kv, case.table[1], start, stop), expected, strict=True
        ):
            assert relative_error(found, wanted + 1e-30) < 1e-6 or torch.equal(
                found, wanted.float()
            )


def planes() -> torch.Tensor:
    return random(0, 6, 9, 16, 2, 32).to(torch.float16)


def ids(*blocks: int) -> torch.Tensor:
    return torch.tensor(blocks, dtype=torch.int32, device=DEVICE)


def test_copy_on_write_copies_a_block_in_every_plane_and_nothing_else() -> None:
    memory = planes()
    before = memory.clone()
    copy_blocks(memory, ids(3, 3, 8, 1), ids(0, 5, 7, 99))
    before[:, [0, 5, 7]] = before[:, [3, 3, 8]]
    assert torch.equal(memory, before)


def test_gathered_blocks_scatter_to_other_places() -> None:
    memory = planes()
    blocks, out = ids(8, 0, 4), torch.empty_like(planes()[:, :3].transpose(0, 1).contiguous())
    gather_blocks(memory, blocks, out)
    assert torch.equal(out, memory[:, blocks.long()].transpose(0, 1))
    before = memory.clone()
    scatter_blocks(out, ids(1, 2, 3), memory)
    assert torch.equal(memory[:, 1:4], before[:, blocks.long()])
    assert torch.equal(memory[:, 4:], before[:, 4:])


def test_blocks_go_to_rows_of_a_larger_memory_and_come_back_from_there() -> None:
    memory = planes()
    host = torch.zeros((5, 6, 16, 2, 32), dtype=torch.float16, device=DEVICE)
    gather_blocks(memory, ids(8, 0), host, ids(3, 1))
    assert torch.equal(host[[3, 1]], memory[:, [8, 0]].transpose(0, 1))
    assert not host[[0, 2, 4]].any()
    before = memory.clone()
    scatter_blocks(host, ids(5, 6), memory, ids(1, 3))
    assert torch.equal(memory[:, [5, 6]], before[:, [0, 8]])


def test_blocks_survive_a_trip_to_the_host() -> None:
    memory = planes()
    before, blocks = memory.clone(), ids(2, 7)
    staging = torch.empty((2, 6, 16, 2, 32), dtype=torch.float16, device=DEVICE)
    host = torch.empty(staging.shape, dtype=torch.float16, pin_memory=DEVICE == "cuda")
    offload(memory, blocks, staging, host)
    memory.zero_()
    load(host, ids(7, 2), staging, memory)
    assert torch.equal(memory[:, [7, 2]], before[:, [2, 7]])


def test_blocks_that_are_not_contiguous_are_refused() -> None:
    with pytest.raises(ConfigError, match="need contiguous"):
        copy_blocks(planes().transpose(2, 3), ids(0), ids(1))
