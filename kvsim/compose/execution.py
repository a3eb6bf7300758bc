"""What a device can execute, and the execution of a scenario that names one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvsim.compose.plugins import eviction_of
from kvsim.compose.setup import Setup
from kvsim.errors import ConfigError
from kvsim.memory import ALLOCATORS
from kvsim.memory.mapped import MAPPED
from kvsim.protocols import Scheduler
from kvsim.registry import Blueprint
from kvsim.scenario import Scenario

if TYPE_CHECKING:
    from kvsim.execution.assembly import Execution


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


def execution_of(
    setup: Setup, scheduler: Blueprint[Scheduler], *, verify: bool
) -> Execution | None:
    """What executes the scenario on a device, if it names one."""
    scenario = setup.scenario
    if scenario.executor is None:
        if verify:
            raise ConfigError("--verify compares what is executed: it needs --executor gpu or cpu")
        return None
    check_executed(scenario, scheduler)
    try:
        from kvsim.execution.assembly import Execution
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--executor needs PyTorch and Triton ({error}): pip install 'kvsim[gpu]'"
        ) from None

    return Execution(
        scenario.executor,
        setup.layout,
        seats=scenario.max_num_seqs or 1,
        seed=scenario.seed,
        verify=verify,
    )


def check_executed(scenario: Scenario, scheduler: Blueprint[Scheduler]) -> None:
    """Refuse what no executor does."""
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
