"""The only place where names become objects: a scenario and a trace in, a result out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from kvsim.analysis.summary import Deployment as Described
from kvsim.catalog.engines import Engine, load_engine
from kvsim.catalog.hardware import GIB, Gpu, load_gpu
from kvsim.catalog.model import ModelSpec
from kvsim.catalog.models import load_model
from kvsim.core import Request
from kvsim.costs import COST_MODELS
from kvsim.costs.hostlink import HostLink
from kvsim.errors import CapacityError, ConfigError
from kvsim.grouping import page_plan
from kvsim.layout import KVLayout, pipeline_stages
from kvsim.memory import ALLOCATORS
from kvsim.memory.block_table import Mapped
from kvsim.memory.eviction import MakePolicy, queue_of
from kvsim.memory.hybrid import Hybrid
from kvsim.memory.mapped import MAPPED
from kvsim.memory.offloaded import Offloaded
from kvsim.memory.partitioned import Partitioned
from kvsim.memory.reservation import RESERVATIONS, ReservationRule
from kvsim.protocols import Allocator, CostModel, Preemption, Router, Scheduler, VictimRule
from kvsim.quotas import NONE_LEFT, Quotas
from kvsim.registry import Blueprint, blueprint, options, resolve
from kvsim.routing import ROUTERS
from kvsim.runs import Recording, RunResult, new_manifest
from kvsim.scenario import Component, Scenario
from kvsim.scheduling import SCHEDULERS
from kvsim.scheduling.by_tenant import BY_TENANT
from kvsim.scheduling.offloading import Offloading
from kvsim.scheduling.preemption import PREEMPTIONS
from kvsim.scheduling.static import Static
from kvsim.scheduling.victims import VICTIMS
from kvsim.simulation.cluster import audited
from kvsim.simulation.cluster import simulate as replay
from kvsim.simulation.host import HostCosts, Launches
from kvsim.simulation.loading import Loading
from kvsim.simulation.pipelined import Pipelined
from kvsim.simulation.recorder import Recorder
from kvsim.simulation.replica import Replica
from kvsim.sizing import Limits as MemoryLimits
from kvsim.sizing import MemoryPlan, plan_memory, served_limits
from kvsim.tables import Limits
from kvsim.workload import Trace, TraceOptions, open_trace

if TYPE_CHECKING:
    from kvsim.execution.assembly import Execution

T = TypeVar("T")
FAMILIES: tuple[tuple[str, object, Mapping[str, type]], ...] = (
    ("allocator", Allocator, ALLOCATORS),
    ("scheduler", Scheduler, SCHEDULERS),
)
Watch = Callable[[Iterable[Request]], Iterable[Request]]
"""Looks on while requests pass."""


FEWEST_SEQUENCES = 128
"""How far the default number of sequences is lowered for lack of memory."""


class Deployment(NamedTuple):
    """What serves the requests."""

    scenario: Scenario
    """With everything filled in that was left open."""
    replicas: list[Replica]
    router: Router
    limits: Limits
    cost_label: str
    execution: Execution | None = None


def simulate(
    scenario: Scenario,
    trace: str | Path | Trace,
    *,
    out: Path | None = None,
    overwrite: bool = False,
    keep: bool = True,
    leaps: bool = True,
    check: bool = False,
    verify: bool = False,
    watch: Watch = iter,
    name: str = "run",
) -> RunResult:
    """Replay a trace through a scenario.

    ``out`` is the folder of the run; without one the tables stay in memory if ``keep``. ``leaps`` off
    takes every iteration one by one, and gives every request the same times; ``check`` asserts after each that the
    books balance. ``verify`` compares what an executor computes with contiguous memory. ``watch`` sees every request on its way in.
    """
    opened = trace if isinstance(trace, Trace) else open_trace(trace, trace_options(scenario))
    deployed = deploy(scenario, leaps=leaps, check=check, verify=verify)
    replicas, slots = deployed.replicas, deployed.replicas[0].allocator.total_slots
    with Recording(out, overwrite=overwrite, keep=keep, slos=scenario.slo) as recording:
        recorder = Recorder(len(replicas), slots, recording, limits=deployed.limits)
        serve = audited if check else replay
        serve(watch(opened), replicas, deployed.router, recorder)
        manifest = new_manifest(
            scenario=deployed.scenario.model_dump(mode="json"),
            scenario_hash=deployed.scenario.hash,
            trace={"name": Path(opened.name).name, "sha256": opened.sha256()},
            seed=scenario.seed,
            executor=deployed.execution.facts() if deployed.execution is not None else None,
        )
        return recording.complete(manifest, recorder.close(), described(deployed), name)


def trace_options(scenario: Scenario) -> TraceOptions:
    """How the scenario wants its trace to be read."""
    given = scenario.workload.model_dump(exclude_none=True)
    if given.get("request_rate") == "inf":
        given["request_rate"] = math.inf
    return TraceOptions(**given, seed=scenario.seed, isolation=scenario.isolation)


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


def layout_of(scenario: Scenario) -> KVLayout:
    """Where the model keeps KV, as the scenario places it."""
    return KVLayout(
        load_model(scenario.model),
        scenario.kv_cache_dtype,
        scenario.tensor_parallel_size,
        scenario.pipeline_parallel_size,
        state_dtype=scenario.ssm_state_dtype,
    )


def deploy(
    scenario: Scenario, *, leaps: bool = True, check: bool = False, verify: bool = False
) -> Deployment:
    """Make what a scenario names."""
    gpu = load_gpu(scenario.gpu)
    layout = layout_of(scenario)
    scenario = resolved(scenario, layout, gpu)
    at_once = scenario.executor is None and not maps_in_line(scenario)
    settings = shared_settings(scenario, layout, leaps=leaps and at_once)
    engine = None if scenario.engine is None else load_engine(scenario.engine)
    if engine is not None:
        settings = {**settings, "free_order": engine.free_order}
    seam = Allocator if scenario.executor is None else Mapped
    known: Mapping[str, type] = ALLOCATORS if scenario.executor is None else mapped(scenario)
    schedulers: Mapping[str, type] = SCHEDULERS
    if scenario.kv_offloading_size:
        known, schedulers = TIERED
        settings = {**settings, "host_blocks": host_blocks(scenario, layout, engine)}
    if scenario.quotas:
        check_quotas(scenario)
        schedulers = BY_TENANT
    allocator = planned("allocator", seam, known, scenario.allocator, settings)
    scheduler = planned("scheduler", Scheduler, schedulers, scenario.scheduler, settings)
    timing = timing_of(scenario, engine)
    cost_model = planned("cost_model", CostModel, COST_MODELS, timing, settings).build(
        layout=layout, gpu=gpu
    )
    resources = pool(scenario, layout, gpu)
    if "page_plan" in allocator.asks:
        resources |= pages(scenario, layout, gpu)
    preemption = planned(
        "preemption", Preemption, PREEMPTIONS, scenario.preemption, copies_of(scenario)
    )
    link = (
        None if "moves" not in preemption.asks else link_to_host(scenario, layout, gpu, cost_model)
    )
    load = None
    if scenario.kv_offloading_size:
        load = partial(link_to_host(scenario, layout, gpu, cost_model).back, copies="batched")
    kind = replica_kind(scenario, engine, scheduler, layout.model, load)
    execution = execution_of(scenario, layout, scheduler, verify=verify)
    divide = None if not scenario.quotas else divided(scenario, allocator, layout, gpu)

    def replica(index: int) -> Replica:
        memory: Allocator = allocator.build(**resources) if divide is None else divide()
        made, way = kind, preemption.build(moves=link)
        if execution is not None:
            made, way = execution.replica_on(
                cast(Mapped, memory), way, longest_of(scenario, memory)
            )
        return made(
            index,
            scheduler.build(allocator=memory, preemption=way),
            memory,
            cost_model,
            max_model_len=scenario.max_model_len,
            check=check,
        )

    return Deployment(
        scenario,
        [replica(index) for index in range(scenario.replicas)],
        make_router(scenario, settings),
        limits_of(scheduler),
        cost_model.label if execution is None else execution.label,
        execution,
    )


def maps_in_line(scenario: Scenario) -> bool:
    """Whether iterations wait for memory to be mapped, each for its own, so that there are no leaps."""
    in_line = scenario.allocator.options.get("mapping") == "synchronous"
    if in_line and scenario.engine is not None:
        raise ConfigError(
            f"allocator.mapping is synchronous, which engine {scenario.engine} is not; accepted: "
            "hidden, or no --engine"
        )
    return in_line


TIERED: tuple[Mapping[str, type], Mapping[str, type]] = (
    {"paged": Offloaded},
    {"chunked": Offloading},
)
"""What becomes of an allocator and a scheduler with a host tier; others have none."""


DIVIDED = {name: ALLOCATORS[name] for name in ("paged", "radix", "contiguous", "buddy", "slab")}
"""Allocators whose pools quotas divide."""


def check_quotas(scenario: Scenario) -> None:
    """Refuse settings that say nothing about a tenant's part of a pool."""
    if scenario.isolation == "global":
        raise ConfigError(
            "--quotas bounds tenants, whose blocks must be their own; accepted: --isolation tenant, "
            "user or session, not global"
        )
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


def divided(
    scenario: Scenario, allocator: Blueprint[Allocator], layout: KVLayout, gpu: Gpu
) -> Callable[[], Partitioned]:
    """Makes memory of which each tenant has a part, in whole blocks."""
    assert scenario.quotas is not None
    quotas, blocks = scenario.quotas, memory_blocks(scenario, layout, gpu)

    def part(share: float) -> Allocator:
        own = int(share * blocks + NONE_LEFT)
        if not own:
            raise CapacityError(f"it is less than one of the pool's {blocks} blocks")
        bounded = scenario.changed(num_gpu_blocks_override=own)
        return allocator.build(**pool(bounded, layout, gpu))

    return lambda: Partitioned(part, Quotas(quotas))


def host_blocks(scenario: Scenario, layout: KVLayout, engine: Engine | None) -> int:
    """Blocks that the host keeps behind the prefix cache."""
    size = scenario.kv_offloading_size
    if engine is None or not engine.asynchronous or scenario.executor is not None:
        raise ConfigError(f"kv_offloading_size is {size:g}, which needs --engine vllm")
    for family, known in zip(("allocator", "scheduler"), TIERED, strict=True):
        name = getattr(scenario, family).name
        if name in {*ALLOCATORS, *SCHEDULERS} - known.keys():
            raise ConfigError(
                f"kv_offloading_size is {size:g}, and {family} {name} has no host behind its prefix "
                f"cache; accepted: {', '.join(known)}"
            )
    return int(size * GIB) // (scenario.block_size * layout.slot_bytes)


def link_to_host(scenario: Scenario, layout: KVLayout, gpu: Gpu, cost_model: CostModel) -> HostLink:
    """What swapping takes, for preemptions that do."""
    if scenario.host_bandwidth is not None:
        gpu = replace(gpu, pcie_bandwidth=scenario.host_bandwidth * 1e9)
    return HostLink(layout, gpu, cost_model, block_size=scenario.block_size)


def mapped(scenario: Scenario) -> Mapping[str, type]:
    """Allocators that an executor can follow."""
    name = scenario.allocator.name
    if name in ALLOCATORS and name not in MAPPED:
        raise ConfigError(
            f"allocator {name!r} does not say where KV lies, which --executor asks for; accepted: "
            f"{', '.join(MAPPED)}"
        )
    return MAPPED


def copies_of(scenario: Scenario) -> Mapping[str, object]:
    """How an executor swaps, whatever preemptions do by default: one launch for all blocks."""
    if scenario.executor is None:
        return {}
    asked = scenario.preemption.options.get("copies", "gathered")
    if asked != "gathered":
        raise ConfigError(
            f"--executor gathers the blocks that it swaps; accepted: --set preemption.copies=gathered, "
            f"not {asked}"
        )
    return {"copies": "gathered"}


def longest_of(scenario: Scenario, memory: Allocator) -> int:
    """The longest sequence that a replica serves, in tokens."""
    return min(scenario.max_model_len or memory.total_slots, memory.total_slots)


def execution_of(
    scenario: Scenario, layout: KVLayout, scheduler: Blueprint[Scheduler], *, verify: bool
) -> Execution | None:
    """What executes the scenario on a device, if it names one."""
    if scenario.executor is None:
        if verify:
            raise ConfigError("--verify compares what is executed: it needs --executor gpu or cpu")
        return None
    gpus = scenario.replicas * scenario.tensor_parallel_size * scenario.pipeline_parallel_size
    if gpus > 1:
        raise ConfigError(f"--executor has one device, and the scenario {gpus} GPUs; accepted: 1")
    if scenario.engine is not None:
        raise ConfigError(
            f"--executor is an engine of its own; accepted: no --engine ({scenario.engine})"
        )
    if scenario.allocator.name == "paged" and eviction_of(scenario) is not None:
        raise ConfigError(
            f"--executor with paged memory evicts as vLLM does, not by {scenario.eviction.name}; "
            "accepted: --eviction lru, or --allocator radix"
        )
    if not hasattr(scheduler.cls, "decoding"):
        raise ConfigError(
            f"scheduler {scenario.scheduler.name!r} does not say whom its batch decodes, which "
            "--executor asks for; accepted: chunked, continuous"
        )
    from kvsim.execution.assembly import Execution

    return Execution(
        scenario.executor,
        layout,
        seats=scenario.max_num_seqs or 1,
        seed=scenario.seed,
        verify=verify,
    )


def timing_of(scenario: Scenario, engine: Engine | None) -> Component:
    """The cost model: the one that was named, else the engine's, else the scenario's default."""
    if engine is None or "cost_model" in scenario.model_fields_set:
        return scenario.cost_model
    return Component(name="served", options=dict(engine.step))


def replica_kind(
    scenario: Scenario,
    engine: Engine | None,
    scheduler: Blueprint[Scheduler],
    model: ModelSpec,
    load: Callable[[int], int] | None,
) -> Callable[..., Replica]:
    """What runs the batches: one at a time, or as the engine does."""
    if engine is None or not engine.asynchronous:
        return Replica
    if not hasattr(scheduler.cls, "commit"):
        raise ConfigError(
            f"engine {engine.name} schedules ahead, which scheduler {scenario.scheduler.name!r} "
            "cannot; accepted: chunked, continuous"
        )
    sequences = scenario.max_num_seqs or MOST_CAPTURED
    host = host_costs(engine, model, sequences)
    if load is not None:
        return partial(Loading, host=host, load=load)
    return partial(Pipelined, host=host)


MOST_CAPTURED = 512
"""Tokens for which vLLM captures CUDA graphs at most; fewer where twice the sequences are fewer."""


def host_costs(engine: Engine, model: ModelSpec, max_num_seqs: int) -> HostCosts:
    """What an engine's processes take beside the GPU to serve a model."""
    layers, cost = len(model.layers), engine.launch
    routed = sum(bool(layer.mlp and layer.mlp.experts) for layer in model.layers)
    launches = Launches(
        graph=layers * cost["graph"],
        pieces=layers * cost["pieces"] + routed * cost["pieces_experts"],
        kernels=layers * cost["kernels"] + routed * cost["kernels_experts"],
        largest=min(2 * max_num_seqs, MOST_CAPTURED),
    )
    return HostCosts(**engine.host, launches=launches)


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


def resolved(scenario: Scenario, layout: KVLayout, gpu: Gpu) -> Scenario:
    """The scenario with the limits that ``vllm serve`` takes on the GPU where none are given.

    Sampling sets memory aside for every sequence. Where that leaves no pool, the default number of
    sequences is halved, down to 128, until it does; vLLM would stop and ask its user for that.
    """
    tokens, sequences = served_limits(gpu)
    tokens = scenario.max_num_batched_tokens or tokens
    chosen = scenario.changed(
        max_num_batched_tokens=tokens,
        max_num_seqs=scenario.max_num_seqs or min(sequences, tokens),
    )
    while scenario.max_num_seqs is None and not has_pool(chosen, layout, gpu):
        fewer = (chosen.max_num_seqs or 0) // 2
        if fewer < FEWEST_SEQUENCES:
            break
        chosen = chosen.changed(max_num_seqs=fewer)
    return chosen


def has_pool(scenario: Scenario, layout: KVLayout, gpu: Gpu) -> bool:
    """Whether anything is left for the KV cache."""
    try:
        memory_plan(scenario, layout, gpu)
    except CapacityError:
        return False
    return True


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


def memory_plan(scenario: Scenario, layout: KVLayout, gpu: Gpu) -> MemoryPlan:
    """How a GPU's memory is divided; raises CapacityError if nothing is left for the KV cache."""
    assert scenario.max_num_seqs is not None
    assert scenario.max_num_batched_tokens is not None
    return plan_memory(
        layout,
        gpu,
        MemoryLimits(
            scenario.block_size,
            scenario.gpu_memory_utilization,
            scenario.max_num_batched_tokens,
            scenario.max_num_seqs,
            scenario.weight_dtype,
        ),
    )


def pool(scenario: Scenario, layout: KVLayout, gpu: Gpu) -> dict[str, object]:
    """The memory that an allocator hands out, in its blocks or in single slots."""
    blocks = memory_blocks(scenario, layout, gpu)
    slots = blocks * scenario.block_size
    longest = min(scenario.max_model_len or layout.model.max_positions or slots, slots)
    rule = planned("reservation", ReservationRule, RESERVATIONS, scenario.reservation, {})
    return {
        "num_blocks": blocks,
        "num_slots": slots,
        "reservation": rule.build(max_tokens=longest),
    }


def memory_blocks(scenario: Scenario, layout: KVLayout, gpu: Gpu) -> int:
    """Blocks of a replica's pool."""
    plan = memory_plan(scenario, layout, gpu)
    return scenario.num_gpu_blocks_override or plan.num_gpu_blocks


def pages(scenario: Scenario, layout: KVLayout, gpu: Gpu) -> dict[str, object]:
    """The same memory in pages that groups of layers share, each of its own blocks."""
    plan = page_plan(layout, scenario.block_size)
    held = memory_plan(scenario, layout, gpu).kv_pool // plan.page_bytes
    return {"page_plan": plan, "num_pages": scenario.num_gpu_blocks_override or held}


def make_router(scenario: Scenario, settings: Mapping[str, object]) -> Router:
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
