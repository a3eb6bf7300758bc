"""What serves the requests: replicas and their router, made from a scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from kvsim.analysis.summary import Deployment as Described
from kvsim.compose.engine import cost_model_of, maps_in_line, replica_kind
from kvsim.compose.execution import execution_of, mapped
from kvsim.compose.host import TIERED, check_tier, host_blocks, preemption_of
from kvsim.compose.memory import check_quotas, memory_of
from kvsim.compose.plugins import planned, shared_settings
from kvsim.compose.setup import Setup, set_up
from kvsim.memory import ALLOCATORS
from kvsim.memory.block_table import Mapped
from kvsim.memory.hybrid import Hybrid
from kvsim.protocols import Allocator, CostModel, Preemption, Router, Scheduler
from kvsim.registry import Blueprint
from kvsim.routing import ROUTERS
from kvsim.scenario import Scenario
from kvsim.scheduling import SCHEDULERS
from kvsim.scheduling.by_tenant import BY_TENANT
from kvsim.scheduling.static import Static
from kvsim.simulation.replica import Replica
from kvsim.tables import Limits

if TYPE_CHECKING:
    from kvsim.execution.assembly import Execution


class Deployment(NamedTuple):
    """What serves the requests."""

    scenario: Scenario
    """With everything filled in that was left open."""
    replicas: list[Replica]
    router: Router
    limits: Limits
    cost_label: str
    execution: Execution | None = None


class Parts(NamedTuple):
    """What every replica is made of."""

    scheduler: Blueprint[Scheduler]
    memory: Callable[[], Allocator]
    preemption: Callable[[], Preemption]
    cost_model: CostModel
    kind: Callable[..., Replica]
    execution: Execution | None

    def replica(self, index: int, *, max_model_len: int | None, check: bool) -> Replica:
        """The replica number ``index``, with memory of its own."""
        kind, memory, preemption = self.kind, self.memory(), self.preemption()
        if self.execution is not None:
            longest = min(max_model_len or memory.total_slots, memory.total_slots)
            kind, preemption = self.execution.replica_on(cast(Mapped, memory), preemption, longest)
        scheduler = self.scheduler.build(allocator=memory, preemption=preemption)
        return kind(
            index, scheduler, memory, self.cost_model, max_model_len=max_model_len, check=check
        )


def deploy(
    scenario: Scenario, *, leaps: bool = True, check: bool = False, verify: bool = False
) -> Deployment:
    """Make what a scenario names."""
    setup = set_up(scenario)
    settings = settings_of(setup, leaps=leaps)
    parts = parts_of(setup, settings, verify=verify)
    longest, execution = scenario.max_model_len, parts.execution
    return Deployment(
        setup.scenario,
        [
            parts.replica(index, max_model_len=longest, check=check)
            for index in range(scenario.replicas)
        ],
        router_of(scenario, settings),
        limits_of(parts.scheduler),
        parts.cost_model.label if execution is None else execution.label,
        execution,
    )


def settings_of(setup: Setup, *, leaps: bool) -> Mapping[str, object]:
    """What the plug-ins of a deployment get without being told."""
    leaps = leaps and setup.scenario.executor is None and not maps_in_line(setup)
    settings = dict(shared_settings(setup.scenario, setup.layout, leaps=leaps))
    if setup.engine is not None:
        settings["free_order"] = setup.engine.free_order
    if setup.scenario.kv_offloading_size:
        settings["host_blocks"] = host_blocks(setup)
    return settings


def parts_of(setup: Setup, settings: Mapping[str, object], *, verify: bool) -> Parts:
    """Settle what replicas are made of."""
    scenario, (allocators, schedulers) = setup.scenario, known_to(setup)
    seam = Allocator if scenario.executor is None else Mapped
    allocator = planned("allocator", seam, allocators, scenario.allocator, settings)
    scheduler = planned("scheduler", Scheduler, schedulers, scenario.scheduler, settings)
    cost_model = cost_model_of(setup, settings)
    return Parts(
        scheduler,
        memory_of(setup, allocator),
        preemption_of(setup, cost_model),
        cost_model,
        replica_kind(setup, scheduler, cost_model),
        execution_of(setup, scheduler, verify=verify),
    )


def known_to(setup: Setup) -> tuple[Mapping[str, type], Mapping[str, type]]:
    """Allocators and schedulers that know tiers, tenants or devices, as far as the scenario does."""
    if setup.scenario.quotas:
        check_quotas(setup.scenario)
        return ALLOCATORS, BY_TENANT
    if setup.scenario.kv_offloading_size:
        check_tier(setup)
        return TIERED
    if setup.scenario.executor is not None:
        return mapped(setup.scenario), SCHEDULERS
    return ALLOCATORS, SCHEDULERS


def router_of(scenario: Scenario, settings: Mapping[str, object]) -> Router:
    """The router, with a random stream of its own if it asks for one."""
    router = planned("router", Router, ROUTERS, scenario.router, settings)
    if "rng" not in router.asks:
        return router.build()
    from numpy.random import default_rng

    return router.build(rng=default_rng(scenario.seed))


def limits_of(scheduler: Blueprint[Scheduler]) -> Limits:
    """What may keep a request waiting under a scheduler, apart from memory."""
    given = scheduler.keywords
    return Limits(
        _whole(given.get("max_num_seqs")),
        _whole(given.get("max_num_batched_tokens")),
        closed_batches=scheduler.cls is Static,
    )


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


def described(deployed: Deployment) -> Described:
    """What a summary says about the deployment."""
    allocators = [replica.allocator for replica in deployed.replicas]
    slots = getattr(allocators[0], "block_size", None) or getattr(allocators[0], "page_size", None)
    evictions = sum(allocator.evictions for allocator in allocators)
    swapped = sum(getattr(one.scheduler, "swapped_tokens", 0) for one in deployed.replicas)
    return Described(slots or 1, evictions, deployed.cost_label, swapped, groups_of(allocators))


def groups_of(allocators: list[Allocator]) -> dict[str, float] | None:
    """The highest share of a pool that each kind of layers held, if they have blocks of their own."""
    peaks = [one.peaks() for one in allocators if isinstance(one, Hybrid)]
    if not peaks:
        return None
    return {name: max(peak[name] for peak in peaks) for name in peaks[0]}
