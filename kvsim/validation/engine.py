"""The engine of a recording, built as it was: model, GPU, memory, limits and release."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kvsim.catalog.engines import Engine
from kvsim.catalog.hardware import Gpu
from kvsim.compose import host_costs
from kvsim.core import Request
from kvsim.costs.profile import profile_for
from kvsim.costs.served import Served
from kvsim.layout import KVLayout
from kvsim.memory.paged import Paged
from kvsim.protocols import CostModel
from kvsim.routing import RoundRobin
from kvsim.scheduling.chunked import Chunked
from kvsim.simulation.cluster import simulate
from kvsim.simulation.host import HostCosts
from kvsim.simulation.pipelined import Pipelined
from kvsim.simulation.replica import Replica
from kvsim.validation.observed import Observed

PROJECTED = 0.15
"""Relative error that step times of another GPU than the measured one may have besides."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a recorded engine was started with."""

    layout: KVLayout
    gpu: Gpu
    engine: Engine
    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    replicas: int = 1
    step: dict[str, float] = field(default_factory=dict)
    """Options of the step-time model that the engine's data do not have."""

    def cost(self, **constants: Any) -> Served:
        """The step times that kvsim predicts."""
        options: dict[str, Any] = {**self.engine.step, **self.step, **constants}
        return Served(self.layout, self.gpu, block_size=self.block_size, **options)

    @property
    def step_doubt(self) -> float:
        """Relative error to expect of step times: of the engine's, and of the profile's projection."""
        doubt = self.engine.step_doubt
        return doubt if profile_for(self.gpu).gpu == self.gpu.name else doubt + PROJECTED

    @property
    def host(self) -> HostCosts:
        """What its processes take beside the GPU."""
        return host_costs(self.engine, self.layout.model, self.max_num_seqs)

    def parts(self, cost: CostModel, *, leaps: bool) -> tuple[Chunked, Paged, CostModel]:
        """A scheduler, its memory and a time model."""
        pool = Paged(self.num_blocks, block_size=self.block_size, free_order=self.engine.free_order)
        scheduler = Chunked(
            pool,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            leaps=leaps,
        )
        return scheduler, pool, cost

    def serve(self, requests: Iterable[Request], *, slowness: float = 1.0) -> Observed:
        """What clients and the log would show, with every iteration ``slowness`` times as long.

        An engine that is slower is, with time measured in other units, the engine as it is under
        arrivals and host delays that are faster, so that no step time needs to be rounded.
        """
        cost, host = self.cost(), self.host.scaled(1 / slowness)
        replicas: list[Replica] = [
            Pipelined(index, *self.parts(cost, leaps=True), host=host)
            for index in range(self.replicas)
        ]
        observed = Observed(slowness)
        arrivals = (one._replace(arrival=(one.arrival or 0.0) / slowness) for one in requests)
        simulate(arrivals, replicas, RoundRobin(), observed)
        return observed
