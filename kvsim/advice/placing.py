"""The deployment that a situation starts from: one engine, with its limits settled, that fits."""

from __future__ import annotations

from typing import NamedTuple

from kvsim.advice.situation import Situation
from kvsim.catalog import load_gpu
from kvsim.compose import layout_of, memory_plan, resolved
from kvsim.errors import CapacityError
from kvsim.scenario import Scenario

NARROWER = ("fp8", "int4")
"""Weights that are tried, in this order, where the model does not fit as it is."""


def placed(scenario: Scenario, where: Situation) -> Scenario:
    """The deployment of a situation: one engine, unless the traffic is that of all."""
    if where.gpu is not None:
        return scenario.changed(
            gpu=where.gpu, tensor_parallel_size=1, pipeline_parallel_size=1, replicas=1
        )
    return scenario if where.clients is None else scenario.changed(replicas=1)


class Placed(NamedTuple):
    """A deployment that fits."""

    scenario: Scenario
    needed: str | None
    """What it fits with only."""


def fitting(scenario: Scenario) -> Placed:
    """The deployment, with narrower weights if it does not fit as it is; CapacityError if it never does."""
    for dtype in (None, *NARROWER):
        narrowed = scenario if dtype is None else scenario.changed(weight_dtype=dtype)
        try:
            found = settled(narrowed)
        except CapacityError as error:
            mistake = error
            continue
        return Placed(
            found, None if dtype is None else f"{dtype} weights, without which it does not fit"
        )
    raise mistake


def settled(scenario: Scenario) -> Scenario:
    """The scenario with everything filled in; CapacityError if it does not fit."""
    layout = layout_of(scenario)
    gpu = load_gpu(scenario.gpu)
    found = resolved(scenario, layout, gpu)
    memory_plan(found, layout, gpu)
    return found
