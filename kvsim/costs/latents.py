"""Latent attention (MLA) of decodes as vLLM 0.23 computes it on Hopper: FlashAttention-3.

A profile has timed another kernel. The engine's takes a time of its own to begin, to cut contexts and
to merge the parts; beyond that it reads and computes at a steady share of what the GPU can. With CUDA
graphs a context is cut into ``PARTS`` at most (``flash_attn_max_num_splits_for_cuda_graph``), so a few
sequences do not occupy all multiprocessors.
"""

from __future__ import annotations

from typing import NamedTuple

from kvsim.catalog.hardware import Gpu
from kvsim.costs.demand import MICRO, Demand
from kvsim.costs.operators import Estimate

PARTS = 32
ENOUGH = 2 / 3
"""Share of the multiprocessors that read at the full rate together: from recorded iterations of one
sequence of 32,000 tokens, which took 12 us a layer longer than the kernel without that limit."""


class LatentKernel(NamedTuple):
    """What a kernel for latent attention of decodes takes."""

    start: float
    """Seconds of a call that reads next to nothing."""
    reading: float
    """Share of the memory's bandwidth."""
    computing: float
    """Share of the peak FLOP rate."""

    def instead(
        self, found: Estimate, demand: Demand, batch: float, gpu: Gpu, processors: int
    ) -> Estimate:
        """The time of one run in place of another kernel's; its spread is as wide."""
        occupied = min(1.0, PARTS * batch / (ENOUGH * processors))
        read = Demand(bytes=demand.bytes).bound(gpu) / (self.reading * occupied)
        computed = Demand(flops=demand.flops).bound(gpu) / self.computing
        time = MICRO * self.start + max(read, computed)
        return found.scaled(time / found.time, "interpolated")
