"""Random paged memory that punishes reading anything but what the table and the lengths name."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch", reason="the kernels need the gpu extra")
pytest.importorskip("triton", reason="the kernels need the gpu extra")

from kvsim.kernels.paged import EIGHT_BIT, PagedKV, empty_kv  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FLOATS = [torch.float32, torch.float16] + ([torch.bfloat16] if DEVICE == "cuda" else [])
"""The interpreter multiplies bfloat16 wrongly, so it is tested on a GPU only."""
TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-3, torch.bfloat16: 1e-2}
NOWHERE = 1_000_000_000
"""A block id that would crash, or read another process's memory, if it were followed."""


@dataclass
class Case:
    """A batch: KV memory, block table and lengths; ``new`` tokens of each sequence are queries."""

    kv: PagedKV
    table: torch.Tensor
    lengths: torch.Tensor
    q: torch.Tensor
    starts: torch.Tensor


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """||found - expected|| / ||expected||; NaN if anything is NaN."""
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def block_table(
    generator: torch.Generator, lengths: list[int], block_size: int
) -> tuple[torch.Tensor, int]:
    """Blocks in random order, ids that exist nowhere after each sequence's last; blocks in all."""
    counts = [-(-n // block_size) for n in lengths]
    ids = torch.randperm(sum(counts) + 3, generator=generator)[: sum(counts)].int()
    table = torch.full((len(lengths), max(1, *counts)), NOWHERE, dtype=torch.int32)
    for s, blocks in enumerate(ids.split(counts)):
        table[s, : counts[s]] = blocks
    return table.to(DEVICE), sum(counts) + 3


def paged(
    seed: int,
    lengths: list[int],
    *,
    block_size: int = 16,
    heads: tuple[int, int] = (4, 2),
    head_dim: int = 32,
    dtype: torch.dtype = torch.float32,
    kv_dtype: torch.dtype | None = None,
    token_scales: bool = False,
    new: list[int] | None = None,
) -> Case:
    """Random keys, values and queries; every slot that no sequence owns holds NaN."""
    generator = torch.Generator().manual_seed(seed)
    table, blocks = block_table(generator, lengths, block_size)
    kv = empty_kv(
        blocks, block_size, heads[1], head_dim,
        dtype=kv_dtype or dtype, token_scales=token_scales, device=DEVICE,
    )  # fmt: skip
    fill(generator, kv, table, lengths)
    new = new or [1] * len(lengths)
    q = torch.randn((sum(new), heads[0], head_dim), generator=generator)
    starts = torch.tensor([0, *new]).cumsum(0).int()
    sizes = torch.tensor(lengths, dtype=torch.int32)
    return Case(kv, table, sizes.to(DEVICE), q.to(DEVICE, dtype), starts.to(DEVICE))


def fill(generator: torch.Generator, kv: PagedKV, table: torch.Tensor, lengths: list[int]) -> None:
    """Random numbers where the table points, poison elsewhere."""
    owned = torch.zeros(kv.k.shape[:2], dtype=torch.bool, device=DEVICE)
    for s, n in enumerate(lengths):
        tokens = torch.arange(n, device=DEVICE)
        owned[table[s][tokens // kv.block_size].long(), tokens % kv.block_size] = True
    for stored, scale in ((kv.k, kv.k_scale), (kv.v, kv.v_scale)):
        values = torch.randn(stored.shape, generator=generator).to(DEVICE)
        poison = 127.0 if stored.dtype == torch.int8 else torch.nan
        values = values * (40.0 if stored.dtype in EIGHT_BIT else 1.0)
        stored.copy_(torch.where(owned[..., None, None], values, poison).to(stored.dtype))
        if scale is not None:
            scale.copy_(torch.rand(scale.shape, generator=generator) * 0.03 + 0.01)
