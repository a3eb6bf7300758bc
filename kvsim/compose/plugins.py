"""From the names of plug-ins to their classes, with the options that the scenario settles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from kvsim.layout import KVLayout, pipeline_stages
from kvsim.memory import ALLOCATORS
from kvsim.memory.eviction import MakePolicy, queue_of
from kvsim.protocols import Allocator, Preemption, Scheduler, VictimRule
from kvsim.registry import Blueprint, blueprint, options, resolve
from kvsim.scenario import Component, Scenario
from kvsim.scheduling import SCHEDULERS
from kvsim.scheduling.preemption import PREEMPTIONS
from kvsim.scheduling.victims import VICTIMS

T = TypeVar("T")
FAMILIES: tuple[tuple[str, object, Mapping[str, type]], ...] = (
    ("allocator", Allocator, ALLOCATORS),
    ("scheduler", Scheduler, SCHEDULERS),
)
OPTIONAL = {
    "enable_prefix_caching": "prefix_caching",
    "eviction": "eviction",
    "reservation": "reservation",
    "long_prefill_token_threshold": "long_prefill_token_threshold",
    "watermark": "watermark",
    "victim": "victim",
    "preemption": "preemption",
}
"""Settings that only some plug-ins know, with the parameter that they become."""


def planned(
    family: str,
    seam: object,
    registry: Mapping[str, Callable[..., T]],
    component: Component,
    settings: Mapping[str, object],
) -> Blueprint[T]:
    """The class that a component names, with its options settled."""
    named = f"{family} {component.name}"
    cls = resolve(family.replace("_", " "), seam, registry, component.name)
    return blueprint(named, cls, settings, component.options)


def shared_settings(scenario: Scenario, layout: KVLayout, *, leaps: bool) -> Mapping[str, object]:
    """What a plug-in gets without being told, as far as its constructor has the option."""
    fixed = layout.fixed_slots(scenario.max_model_len)
    return {
        **dict(scenario),
        "prefix_caching": scenario.enable_prefix_caching,
        "eviction": eviction_of(scenario),
        "victim": planned("victim", VictimRule, VICTIMS, scenario.victim, {}).build(),
        "fixed_blocks": -(-fixed // scenario.block_size),
        "slots_per_sequence": fixed,
        "slot_bytes": layout.slot_bytes,
        "tensors": kv_tensors(layout),
        "leaps": leaps,
    }


def kv_tensors(layout: KVLayout) -> int:
    """Tensors that grow with a sequence on the GPU with most layers: keys and values of each, say."""
    stage = max(pipeline_stages(layout.model.layers, layout.pipeline_parallel), key=len)
    streams = [one for layer in stage if layer.attention for one in layer.attention.streams]
    return sum(stream.window is None for stream in streams) or len(streams) or 1


def eviction_of(scenario: Scenario) -> MakePolicy | None:
    """Makes the policy of one cache; None for the allocator's own order, which is LRU's."""
    if scenario.eviction == Component(name="lru"):
        return None
    from kvsim.memory.eviction.policies import EVICTIONS

    plan = planned("eviction", object, EVICTIONS, scenario.eviction, {})
    queue_of(plan.build(capacity=1))  # a mistake shows here
    return lambda capacity: plan.build(capacity=capacity)


def ignored(scenario: Scenario) -> list[str]:
    """Settings that were given, but mean nothing to the chosen allocator and scheduler."""
    known: set[str] = set()
    for family, seam, registry in FAMILIES:
        plan = planned(family, seam, registry, getattr(scenario, family), {})
        known |= plan.asks.keys() | options(plan.cls).keys()
    given = scenario.model_fields_set
    unknown = {name for name in OPTIONAL.keys() & given if OPTIONAL[name] not in known}
    preemption = planned("preemption", Preemption, PREEMPTIONS, scenario.preemption, {})
    if not scenario.kv_offloading_size and "moves" not in preemption.asks:
        unknown |= {"host_bandwidth"} & given
    return sorted(unknown)
