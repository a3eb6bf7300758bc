"""What it takes to move KV between a GPU and its host, and what computing it again would take."""

from __future__ import annotations

from math import ceil
from typing import Literal

from kvsim.catalog.hardware import GIB, Gpu, load_gpu
from kvsim.core import BatchShape
from kvsim.costs.operators import load_profile
from kvsim.errors import ConfigError
from kvsim.layout import KVLayout
from kvsim.protocols import CostModel

MEASURED = "h200"
"""The profile that has the times of copies to and from the host."""
SUSTAINED = 0.86
"""Of the link's nominal rate in large copies: 55 of 64 GB/s on the H200 (256 MiB, pinned memory)."""
MICROSECOND = 10**6
"""Picoseconds."""

BATCHED = 0.5
"""Microseconds that a copy takes beside its bytes when many are handed over at once: loads of vLLM
0.23, recorded on an H200, took 1.65 to 1.75 us for each 64 KiB."""

Copies = Literal["blocks", "batched", "gathered"]


class HostLink:
    """Copies of whole blocks of a model's KV over a GPU's link to pinned host memory.

    The times are those that were measured on an H200 for 1 to 64 copies in a row, of 4 KiB each to
    256 MiB in all, so that small copies pay for each call. On a GPU with a slower link the bytes take
    as much longer as its nominal rate is lower, and a call as long; a faster link takes what that of
    the H200 does for as many bytes fewer.

    ``blocks`` copies each block of each layer, keys and values apart, as vLLM's V0 engine did
    (``swap_blocks``); ``batched`` hands over all blocks of all layers in one call, as vLLM's V1 engine
    does (``swap_blocks_batch``); ``gathered`` packs all blocks on the device and copies once.
    """

    def __init__(
        self, layout: KVLayout, gpu: Gpu, cost_model: CostModel, *, block_size: int
    ) -> None:
        self._slot = layout.slot_bytes
        self._block = block_size
        kinds = [layer.attention for layer in layout.model.layers if layer.attention is not None]
        streams = sum(len(attention.streams) for attention in kinds)
        self._pieces = max(1, ceil(streams / layout.pipeline_parallel))
        self._layers = ceil(len(kinds) / layout.pipeline_parallel)
        self._cost_model = cost_model
        self._tables = load_profile(MEASURED)
        its, timed = per_byte(gpu), per_byte(load_gpu(self._tables.gpu))
        self._slower, self._fewer = max(0.0, its - timed), min(1.0, its / timed)

    def slots(self, gib: float) -> int:
        """Slots whose KV a host space of so many GiB holds."""
        return int(gib * GIB) // self._slot

    def out(self, tokens: int, copies: Copies = "blocks") -> int:
        """Picoseconds of copying ``tokens`` tokens to the host."""
        return self._time("device_to_host", tokens, copies)

    def back(self, tokens: int, copies: Copies = "blocks") -> int:
        """Picoseconds of copying them to the GPU."""
        return self._time("host_to_device", tokens, copies)

    def _time(self, table: str, tokens: int, copies: Copies) -> int:
        blocks = -(-tokens // self._block)
        count = blocks * self._pieces if copies == "blocks" else 1
        size = blocks * self._block * self._slot / max(1, count)
        one = self._tables.table(table).at((count,), size * self._fewer).time
        if copies == "batched":
            one += BATCHED * blocks * self._layers
        return ceil(MICROSECOND * (one + count * size * self._slower))

    def compute(self, tokens: int) -> int:
        """Picoseconds of one prefill of ``tokens`` tokens."""
        pairs = tokens * (tokens + 1) // 2
        return self._cost_model.time(BatchShape(0, 0, 1, tokens, 0, pairs, 1))


def per_byte(gpu: Gpu) -> float:
    """Microseconds that a byte takes over the link to the host."""
    if gpu.pcie_bandwidth is None:
        raise ConfigError(f"{gpu.name}: no bandwidth to the host is known, so KV cannot be swapped")
    return 1e6 / (gpu.pcie_bandwidth * SUSTAINED)
