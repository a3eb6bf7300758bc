"""The real KV memory of a replay: what the ids of block tables stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kvsim.catalog.formats import KVFormat
from kvsim.errors import CapacityError, ConfigError
from kvsim.execution.shape import Shape
from kvsim.memory.block_table import BlockTable, Mapped

if TYPE_CHECKING:
    from kvsim.kernels.paged import PagedKV

EIGHT_BIT = {
    "fp8": (torch.float8_e4m3fn, False),
    "fp8_per_token_head": (torch.float8_e4m3fn, True),
    "int8": (torch.int8, True),
}
"""KV formats of 8 bits: their type, and whether every token has a scale of its own."""
WIDE = ("bf16", "fp16", "fp32")
"""KV formats that are stored in the type that is computed in."""


class KVMemory:
    """Keys and values of all layers, ``[layers, 2, entries, tokens, kv_heads, head_dim]``.

    ``longest`` is the longest sequence, in tokens. Slots that nobody wrote hold NaN where the type has
    one, so that reading them shows.
    """

    def __init__(
        self,
        shape: Shape,
        allocator: Mapped,
        kv_format: KVFormat,
        longest: int,
        dtype: torch.dtype,
        device: str,
    ) -> None:
        tokens = allocator.entry_tokens
        stored, by_token = stored_as(kv_format, dtype)
        if tokens is None and by_token:
            raise ConfigError(
                f"{kv_format.name} KV has a scale for each token: contiguous and buddy ranges accept "
                f"{', '.join(WIDE)} and fp8"
            )
        blocks = allocator.entries + (longest if tokens is None else 0)
        self.size = tokens or longest
        """Tokens that an entry of a table covers."""
        self.stride = tokens or 1
        """Slots from one id to the next."""
        self.width = 1 if tokens is None else -(-longest // tokens)
        """Entries of the longest table."""
        dims = (shape.layers, 2, blocks, tokens or 1, shape.kv_heads)
        self.planes = allocated((*dims, shape.head_dim), stored, device)
        self.scales = allocated(dims, torch.float32, device) if by_token else None
        self.fill(stored)
        self.written = [self._layer(i, static=stored != dtype) for i in range(shape.layers)]
        """Each layer by slots: what new KV is written to."""
        self.read = [kv.regions(longest) if tokens is None else kv for kv in self.written]
        """Each layer as attention reads it."""

    def fill(self, stored: torch.dtype) -> None:
        """Make what was never written look like nothing else."""
        poison = 127 if stored == torch.int8 else torch.nan
        for plane in self.planes:
            plane.copy_(torch.full((), poison, device=plane.device).to(stored))
        if self.scales is not None:
            self.scales.fill_(torch.nan)

    def _layer(self, index: int, *, static: bool) -> PagedKV:
        from kvsim.kernels.paged import PagedKV

        k, v = self.planes[index]
        if self.scales is not None:
            return PagedKV(k, v, *self.scales[index])
        if not static:
            return PagedKV(k, v)
        ones = torch.ones(k.shape[2], device=k.device)
        return PagedKV(k, v, ones, ones)

    def slots(self, entries: Tensor, positions: Tensor) -> Tensor:
        """Where tokens lie, given the entries of their tables that cover them; negative for none."""
        return entries * self.stride + positions % self.size

    def places(self, start: int, stop: int) -> range:
        """Which blocks of a sequence (slots, of a range) hold its tokens from ``start`` to ``stop``."""
        return range(start // self.stride, -(-stop // self.stride))

    def blocks(self, table: BlockTable, places: range) -> list[int]:
        """The ids of those blocks (slots)."""
        if self.width == 1:
            return [table.blocks[0] + place for place in places]
        return table.blocks[places.start : places.stop]

    def copied(self) -> list[Tensor]:
        """What a copy of blocks must move, each ``[planes, blocks, ...]``."""
        moved = [self.planes.flatten(0, 1)]
        return moved if self.scales is None else [*moved, self.scales.flatten(0, 1)]


def stored_as(kv_format: KVFormat, dtype: torch.dtype) -> tuple[torch.dtype, bool]:
    """The type of stored KV, and whether every token has a scale."""
    name = kv_format.name
    if name in EIGHT_BIT:
        return EIGHT_BIT[name]
    if name not in WIDE:
        known = ", ".join((*WIDE, *EIGHT_BIT))
        raise ConfigError(f"kv_cache_dtype {name} cannot be executed; accepted: auto, {known}")
    return dtype, False


def allocated(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Tensor:
    """Memory, or a CapacityError that says how much was asked for."""
    try:
        return torch.empty(shape, dtype=dtype, device=device)
    except (RuntimeError, MemoryError):
        size = dtype.itemsize * torch.Size(shape).numel()
        raise CapacityError(
            f"{size / 2**30:.1f} GiB cannot be allocated on {device}: take a smaller model, or fewer "
            "blocks with --num-gpu-blocks-override"
        ) from None


def as_stored(rows: Tensor, kv: PagedKV) -> Tensor:
    """Rows ``[tokens, heads, dim]`` as they come back from memory of this kind."""
    from kvsim.execution.operators import quantised, quantiser

    if kv.k_scale is None:
        return rows
    by_token, dtype = kv.k_scale.dim() == 3, kv.k.dtype
    scale = quantiser(rows, dtype) if by_token else kv.k_scale.expand(rows.shape[:2])
    stored = quantised(rows, scale, dtype).to(dtype)
    return (stored.float() * scale[..., None]).to(rows.dtype)
