"""Random data to compute on, made once and sliced: time must not depend on zeros or on allocation."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from ..paged import EIGHT_BIT, PagedKV, empty_kv


class Arena:
    """Pools of random numbers on one device."""

    def __init__(self, device: str, *, weight_bytes: int, kv_bytes: int) -> None:
        self.device = torch.device(device)
        self.weight_bytes, self.kv_bytes = weight_bytes, kv_bytes
        self.dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        self._memory: tuple[tuple[object, ...], PagedKV] | None = None

    @cached_property
    def numbers(self) -> Tensor:
        """Normal numbers of a small variance, as weights and activations are."""
        count = self.weight_bytes // self.dtype.itemsize
        pool = torch.empty(count, dtype=self.dtype, device=self.device)
        return pool.normal_(0, 0.05, generator=self.generator)

    @cached_property
    def eighths(self) -> Tensor:
        """The same in fp8 (e4m3), scaled by 16 to use its range."""
        pool = torch.empty(self.numbers.numel(), dtype=torch.float8_e4m3fn, device=self.device)
        for part, source in zip(pool.split(2**26), self.numbers.split(2**26), strict=True):
            part.copy_(source * 16)
        return pool

    @cached_property
    def generator(self) -> torch.Generator:
        """The stream of random numbers."""
        return torch.Generator(self.device).manual_seed(0)

    def slices(self, pool: Tensor, shape: tuple[int, ...], sets: int) -> list[Tensor]:
        """Up to ``sets`` tensors of a shape that do not overlap."""
        size = 1
        for length in shape:
            size *= length
        step = -(-size // 128) * 128
        fit = max(1, min(sets, pool.numel() // step))
        return [pool[i * step : i * step + size].view(shape) for i in range(fit)]

    def activations(self, *shape: int) -> Tensor:
        """Fresh activations."""
        made = torch.empty(shape, dtype=self.dtype, device=self.device)
        return made.normal_(generator=self.generator)

    def vector(self, values: list[int]) -> Tensor:
        """Whole numbers as int32."""
        return torch.tensor(values, dtype=torch.int32, device=self.device)

    def memory(self, dtype: str, block_size: int, kv_heads: int, head_dim: int) -> PagedKV:
        """KV memory full of random rows; the last one asked for is kept."""
        key = (dtype, block_size, kv_heads, head_dim)
        if self._memory is None or self._memory[0] != key:
            self._memory = None
            stored = {"fp8": torch.float8_e4m3fn, "int8": torch.int8}.get(dtype, self.dtype)
            block = 2 * block_size * kv_heads * head_dim * stored.itemsize
            blocks = max(16, self.kv_bytes // block // 16 * 16)
            kv = empty_kv(
                blocks, block_size, kv_heads, head_dim, dtype=stored,
                token_scales=dtype == "int8", device=str(self.device),
            )  # fmt: skip
            self._fill(kv)
            self._memory = (key, kv)
        return self._memory[1]

    def _fill(self, kv: PagedKV) -> None:
        """Random rows; whole numbers of 8 bits come with a scale for each token and head."""
        for part, scale in ((kv.k, kv.k_scale), (kv.v, kv.v_scale)):
            if part.dtype == torch.int8 and scale is not None:
                part.random_(-127, 128, generator=self.generator)
                scale.fill_(1 / 64)
            else:
                repeat(part, self.eighths if part.dtype in EIGHT_BIT else self.numbers)

    def tables(self, num_blocks: int, batch: int, blocks: int, sets: int) -> list[Tensor]:
        """Block tables of scattered blocks, ``[batch, blocks]`` each; sets share no block if they can."""
        order = torch.randperm(num_blocks, device=self.device, generator=self.generator)
        index = torch.arange(batch * blocks, device=self.device)
        return [
            order[(index + i * batch * blocks) % num_blocks].view(batch, blocks).int()
            for i in range(sets)
        ]


def repeat(memory: Tensor, numbers: Tensor) -> None:
    """Write numbers over memory, as often as they fit."""
    flat = memory.view(-1)
    for part in flat.split(numbers.numel()):
        part.copy_(numbers[: part.numel()])
