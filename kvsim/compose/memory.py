"""The memory of a replica: one pool of blocks, pages that groups of layers share, or tenants' parts."""

from __future__ import annotations

from collections.abc import Callable

from kvsim.compose.limits import memory_plan
from kvsim.compose.plugins import planned
from kvsim.compose.setup import Setup
from kvsim.errors import CapacityError, ConfigError
from kvsim.grouping import page_plan
from kvsim.memory import ALLOCATORS
from kvsim.memory.partitioned import Partitioned
from kvsim.memory.reservation import RESERVATIONS, ReservationRule
from kvsim.protocols import Allocator
from kvsim.quotas import NONE_LEFT, Quotas, check_isolation
from kvsim.registry import Blueprint
from kvsim.scenario import Scenario
from kvsim.scheduling.by_tenant import BY_TENANT

DIVIDED = {name: ALLOCATORS[name] for name in ("paged", "radix", "contiguous", "buddy", "slab")}
"""Allocators whose pools quotas divide."""


def memory_of(setup: Setup, allocator: Blueprint[Allocator]) -> Callable[[], Allocator]:
    """Makes the memory of one replica."""
    if setup.scenario.quotas:
        return divided(setup, allocator)
    resources = pool(setup)
    if "page_plan" in allocator.asks:
        resources |= pages(setup)
    return lambda: allocator.build(**resources)


def pool(setup: Setup) -> dict[str, object]:
    """The memory that an allocator hands out, in its blocks or in single slots."""
    scenario, blocks = setup.scenario, memory_blocks(setup)
    slots = blocks * scenario.block_size
    longest = min(scenario.max_model_len or setup.layout.model.max_positions or slots, slots)
    rule = planned("reservation", ReservationRule, RESERVATIONS, scenario.reservation, {})
    return {
        "num_blocks": blocks,
        "num_slots": slots,
        "reservation": rule.build(max_tokens=longest),
    }


def memory_blocks(setup: Setup) -> int:
    """Blocks of a replica's pool."""
    plan = memory_plan(setup.scenario, setup.layout, setup.gpu)
    return setup.scenario.num_gpu_blocks_override or plan.num_gpu_blocks


def pages(setup: Setup) -> dict[str, object]:
    """The same memory in pages that groups of layers share, each of its own blocks."""
    scenario = setup.scenario
    plan = page_plan(setup.layout, scenario.block_size)
    held = memory_plan(scenario, setup.layout, setup.gpu).kv_pool // plan.page_bytes
    return {"page_plan": plan, "num_pages": scenario.num_gpu_blocks_override or held}


def check_quotas(scenario: Scenario) -> None:
    """Refuse settings that say nothing about a tenant's part of a pool."""
    check_isolation(scenario.isolation)
    for name, known in (("allocator", DIVIDED), ("scheduler", BY_TENANT)):
        chosen = getattr(scenario, name).name
        if chosen not in known:
            accepted = ", ".join(sorted(known))
            raise ConfigError(f"--quotas cannot divide for {name} {chosen!r}; accepted: {accepted}")
    for name in ("watermark", "kv_offloading_size", "executor"):
        if getattr(scenario, name):
            raise ConfigError(
                f"--quotas divides the pool, which --{name.replace('_', '-')} does not know; accepted: "
                "one of the two"
            )


def divided(setup: Setup, allocator: Blueprint[Allocator]) -> Callable[[], Partitioned]:
    """Makes memory of which each tenant has a part, in whole blocks."""
    scenario, blocks = setup.scenario, memory_blocks(setup)
    assert scenario.quotas is not None
    quotas = scenario.quotas

    def part(share: float) -> Allocator:
        own = int(share * blocks + NONE_LEFT)
        if not own:
            raise CapacityError(f"it is less than one of the pool's {blocks} blocks")
        bounded = scenario.changed(num_gpu_blocks_override=own)
        return allocator.build(**pool(setup._replace(scenario=bounded)))

    return lambda: Partitioned(part, Quotas(quotas))
