"""What runs the batches: replicas as the engine has them, and what an iteration takes there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial

from kvsim.catalog.engines import Engine
from kvsim.catalog.hardware import Gpu
from kvsim.catalog.model import ModelSpec
from kvsim.compose.host import link_to_host
from kvsim.compose.plugins import planned
from kvsim.compose.setup import Setup
from kvsim.costs import COST_MODELS
from kvsim.costs.attending import MLA
from kvsim.errors import ConfigError
from kvsim.layout import KVLayout
from kvsim.protocols import CostModel, Scheduler
from kvsim.registry import Blueprint
from kvsim.scenario import Component
from kvsim.simulation.host import HostCosts, Launches
from kvsim.simulation.loading import Loading
from kvsim.simulation.pipelined import Pipelined
from kvsim.simulation.replica import Replica

MOST_CAPTURED = 512
"""Tokens for which vLLM captures CUDA graphs at most; fewer where twice the sequences are fewer."""


def cost_model_of(setup: Setup, settings: Mapping[str, object]) -> CostModel:
    """The cost model: the one that was named, else the engine's, else the scenario's default."""
    timing = setup.scenario.cost_model
    if setup.engine is not None and "cost_model" not in setup.scenario.model_fields_set:
        timing = Component(name="served", options=dict(setup.engine.step))
    model = planned("cost_model", CostModel, COST_MODELS, timing, settings)
    if timing.name not in COST_MODELS:
        return model.build(layout=setup.layout, gpu=setup.gpu)
    return built(model.cls, setup.layout, setup.gpu, tuple(sorted(model.keywords.items())))


@lru_cache(maxsize=32)
def built(
    cls: Callable[..., CostModel],
    layout: KVLayout,
    gpu: Gpu,
    options: tuple[tuple[str, object], ...],
) -> CostModel:
    """One of kvsim's own cost models, which remember nothing but times: deployments share them."""
    model = Blueprint(cls.__name__, cls, dict(options))
    return model.build(layout=layout, gpu=gpu)


def maps_in_line(setup: Setup) -> bool:
    """Whether iterations wait for memory to be mapped, each for its own, so that there are no leaps."""
    scenario = setup.scenario
    in_line = scenario.allocator.options.get("mapping") == "synchronous"
    if in_line and scenario.engine is not None:
        raise ConfigError(
            f"allocator.mapping is synchronous, which engine {scenario.engine} is not; accepted: "
            "hidden, or no --engine"
        )
    return in_line


def replica_kind(
    setup: Setup, scheduler: Blueprint[Scheduler], cost_model: CostModel
) -> Callable[..., Replica]:
    """What runs the batches: one at a time, or as the engine does."""
    engine, scenario = setup.engine, setup.scenario
    if engine is None or not engine.asynchronous:
        return Replica
    if not hasattr(scheduler.cls, "commit"):
        raise ConfigError(
            f"engine {engine.name} schedules ahead, which scheduler {scenario.scheduler.name!r} "
            "cannot; accepted: chunked, continuous"
        )
    host = host_costs(engine, setup.layout.model, scenario.max_num_seqs or MOST_CAPTURED)
    if not scenario.kv_offloading_size:
        return partial(Pipelined, host=host)
    back = link_to_host(setup, cost_model).back
    return partial(Loading, host=host, load=partial(back, copies="batched"))


def host_costs(engine: Engine, model: ModelSpec, max_num_seqs: int) -> HostCosts:
    """What an engine's processes take beside the GPU to serve a model."""
    layers, cost = len(model.layers), engine.launch
    latent = sum(bool(layer.attention and layer.attention.kind in MLA) for layer in model.layers)
    launches = Launches(
        graph=layers * cost["graph"],
        pieces=layers * cost["pieces"],
        kernels=layers * cost["kernels"] + len(model.mixtures) * cost["kernels_experts"],
        largest=min(2 * max_num_seqs, MOST_CAPTURED),
        latent=latent * cost["latent"],
    )
    return HostCosts(**engine.host, launches=launches)
