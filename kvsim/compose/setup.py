"""What a scenario's names stand for in the catalog."""

from __future__ import annotations

from typing import NamedTuple

from kvsim.catalog.engines import Engine, load_engine
from kvsim.catalog.hardware import Gpu, load_gpu
from kvsim.catalog.models import load_model
from kvsim.compose.limits import resolved
from kvsim.layout import KVLayout
from kvsim.scenario import Scenario


class Setup(NamedTuple):
    """A scenario with everything filled in that was left open, and what it takes place on."""

    scenario: Scenario
    layout: KVLayout
    gpu: Gpu
    engine: Engine | None


def set_up(scenario: Scenario) -> Setup:
    """Look up the scenario's model, GPU and engine, and take the limits that suit them."""
    gpu = load_gpu(scenario.gpu)
    layout = layout_of(scenario)
    engine = None if scenario.engine is None else load_engine(scenario.engine)
    return Setup(resolved(scenario, layout, gpu), layout, gpu, engine)


def layout_of(scenario: Scenario) -> KVLayout:
    """Where the model keeps KV, as the scenario places it."""
    return KVLayout(
        load_model(scenario.model),
        scenario.kv_cache_dtype,
        scenario.tensor_parallel_size,
        scenario.pipeline_parallel_size,
        state_dtype=scenario.ssm_state_dtype,
    )
