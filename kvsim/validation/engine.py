"""The engine of a recording, built as it was: model, GPU, memory, limits and release."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import hypot
from typing import Any

from kvsim.catalog.engines import Engine
from kvsim.catalog.hardware import Gpu
from kvsim.compose import host_costs
from kvsim.core import BatchShape, Request
from kvsim.costs.breakdown import breakdown
from kvsim.costs.fixed import Fixed
from kvsim.costs.hostlink import HostLink
from kvsim.costs.profile import Measured, profile_for
from kvsim.costs.served import Served
from kvsim.layout import KVLayout
from kvsim.memory.offloaded import Offloaded
from kvsim.memory.paged import Paged
from kvsim.protocols import CostModel
from kvsim.routing import RoundRobin
from kvsim.scheduling.chunked import Chunked
from kvsim.scheduling.offloading import Offloading
from kvsim.simulation.cluster import simulate
from kvsim.simulation.host import HostCosts
from kvsim.simulation.loading import Loading
from kvsim.simulation.pipelined import Pipelined
from kvsim.simulation.replica import Replica
from kvsim.validation.device import Device
from kvsim.validation.observed import Observed

PROJECTED = 0.15
"""Relative error that step times of another GPU than the one whose kernels and engine were measured may
have besides, which all kernels share: an assumption."""
TYPICAL = (
    BatchShape(16, 16 * 4096, sampled=16, context_squares=16 * 4096**2),
    BatchShape(16, 16 * 4096, 1, 2032, 8192, 2032 * 8192 + 2032 * 2033 // 2, 16),
)
"""Batches whose kernels' spread stands for that of all: decodes, and a chunk of a prompt beside them."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a recorded engine was started with."""

    layout: KVLayout
    device: Device
    engine: Engine
    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    replicas: int = 1
    offloading: int = 0
    """Bytes of KV that the host keeps."""
    prefix_caching: bool = True
    captured: tuple[int, ...] | None = None
    """Tokens of its CUDA graphs, in order; None is what the engine takes by default."""
    longest_chunk: int = 0
    """Most tokens of a prompt in an iteration, if not 0."""
    step: dict[str, Any] = field(default_factory=dict)
    """Options of the step-time model that the engine's data do not have."""
    unmodelled: tuple[str, ...] = ()
    """What it was started with that is not modelled, a line each."""

    @property
    def gpu(self) -> Gpu:
        """What it ran on."""
        return self.device.gpu

    def cost(self, **constants: Any) -> Served:
        """The step times that kvsim predicts."""
        options: dict[str, Any] = {**self.engine.step, **self.step, **constants}
        if self.captured is not None:
            options["captured"] = self.captured
        return Served(self.layout, self.gpu, block_size=self.block_size, **options)

    @property
    def step_doubt(self) -> float:
        """Relative error to expect of step times.

        That of the engine's model where it was checked, the spread of the kernels that it is composed
        of, and what another GPU than the measured one leaves open.
        """
        checked = {profile_for(self.gpu).gpu, self.engine.gpu} == {self.gpu.name}
        mixtures = self.layout.model.mixtures
        seen = self.engine.step_doubt_experts if mixtures else self.engine.step_doubt
        known = hypot(seen, spread(self.cost()))
        return known if checked else known + PROJECTED

    @property
    def host(self) -> HostCosts:
        """What its processes take beside the GPU."""
        host = host_costs(self.engine, self.layout.model, self.max_num_seqs)
        if self.captured is None:
            return host
        return host._replace(launches=host.launches._replace(largest=max(self.captured, default=0)))

    def parts(self, cost: CostModel, *, leaps: bool) -> tuple[Chunked, Paged, CostModel]:
        """A scheduler, its memory and a time model."""
        size, order = self.block_size, self.engine.free_order
        limits: dict[str, Any] = {
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "long_prefill_token_threshold": self.longest_chunk,
        }
        if self.offloading:
            blocks = self.offloading // (size * self.layout.slot_bytes)
            tiers = Offloaded(
                self.num_blocks, host_blocks=blocks, block_size=size, free_order=order
            )
            scheduler: Chunked = Offloading(tiers, **limits, leaps=leaps)
            return scheduler, tiers, cost
        caching = self.prefix_caching
        pool = Paged(self.num_blocks, block_size=size, free_order=order, prefix_caching=caching)
        return Chunked(pool, **limits, leaps=leaps), pool, cost

    def load(self, tokens: int) -> int:
        """Picoseconds of loading KV from the host."""
        link = HostLink(self.layout, self.gpu, Fixed(), block_size=self.block_size)
        return link.back(tokens, "batched")

    def replica(self, index: int, cost: CostModel, host: HostCosts) -> Replica:
        """One engine."""
        scheduler, pool, cost = self.parts(cost, leaps=True)
        if isinstance(scheduler, Offloading):
            return Loading(index, scheduler, pool, cost, load=self.load, host=host)
        return Pipelined(index, scheduler, pool, cost, host=host)

    def serve(self, requests: Iterable[Request], *, slowness: float = 1.0) -> Observed:
        """What clients and the log would show, with every iteration ``slowness`` times as long.

        An engine that is slower is, with time measured in other units, the engine as it is under
        arrivals and host delays that are faster, so that no step time needs to be rounded.
        """
        cost, host = self.cost(), self.host.scaled(1 / slowness)
        replicas = [self.replica(index, cost, host) for index in range(self.replicas)]
        observed = Observed(slowness)
        arrivals = (one._replace(arrival=(one.arrival or 0.0) / slowness) for one in requests)
        simulate(arrivals, replicas, RoundRobin(), observed)
        return observed


def spread(cost: Measured) -> float:
    """Relative half width of a step time's interval, from its kernels alone."""
    taken_apart = (breakdown(cost, shape) for shape in TYPICAL)
    return max((step.high - step.low) / 2 / step.total for step in taken_apart)
