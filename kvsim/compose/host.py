"""The host's part: blocks behind the prefix cache, and the link over which KV is swapped and loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from inspect import signature

from kvsim.catalog.hardware import GIB
from kvsim.compose.execution import copies_of
from kvsim.compose.plugins import FAMILIES, OPTIONAL, planned
from kvsim.compose.setup import Setup
from kvsim.costs.hostlink import HostLink
from kvsim.errors import ConfigError
from kvsim.memory import ALLOCATORS
from kvsim.memory.offloaded import Offloaded
from kvsim.protocols import CostModel, Preemption
from kvsim.scenario import Scenario
from kvsim.scheduling import SCHEDULERS
from kvsim.scheduling.offloading import Offloading
from kvsim.scheduling.preemption import PREEMPTIONS

TIERED: tuple[Mapping[str, type], Mapping[str, type]] = (
    {"paged": Offloaded},
    {"chunked": Offloading},
)
"""What becomes of an allocator and a scheduler with a host tier; others have none."""


def check_tier(setup: Setup) -> None:
    """Refuse a host tier where nothing is kept in one."""
    scenario, engine = setup.scenario, setup.engine
    size = scenario.kv_offloading_size
    if engine is None or not engine.asynchronous or scenario.executor is not None:
        raise ConfigError(f"kv_offloading_size is {size:g}, which needs --engine vllm")
    for (family, _, registry), known in zip(FAMILIES, TIERED, strict=True):
        name = getattr(scenario, family).name
        if name in {*ALLOCATORS, *SCHEDULERS} - known.keys():
            raise ConfigError(
                f"kv_offloading_size is {size:g}, and {family} {name} has no host behind its prefix "
                f"cache; accepted: {', '.join(known)}"
            )
        if name in known:
            _check_kept(scenario, parameters(registry[name]) - parameters(known[name]))


def parameters(plugin: type) -> Set[str]:
    """Names of all that a constructor takes."""
    return signature(plugin).parameters.keys()


def _check_kept(scenario: Scenario, lost: Set[str]) -> None:
    """Refuse a setting that a plug-in loses with a host tier, unless it is as it is anyway."""
    for name, parameter in OPTIONAL.items():
        usual = Scenario.model_fields[name].default
        given = getattr(scenario, name)
        if parameter in lost and getattr(given, "name", given) != usual:
            chosen = getattr(given, "name", str(given).lower())
            raise ConfigError(
                f"kv_offloading_size is {scenario.kv_offloading_size:g}, which {name} = {chosen} "
                f"does not go with; accepted: {str(usual).lower()}"
            )


def host_blocks(setup: Setup) -> int:
    """Blocks that the host keeps behind the prefix cache."""
    size = setup.scenario.kv_offloading_size
    return int(size * GIB) // (setup.scenario.block_size * setup.layout.slot_bytes)


def link_to_host(setup: Setup, cost_model: CostModel) -> HostLink:
    """What swapping takes, for preemptions that do."""
    scenario, gpu = setup.scenario, setup.gpu
    if scenario.host_bandwidth is not None:
        gpu = replace(gpu, pcie_bandwidth=scenario.host_bandwidth * 1e9)
    return HostLink(setup.layout, gpu, cost_model, block_size=scenario.block_size)


def preemption_of(setup: Setup, cost_model: CostModel) -> Callable[[], Preemption]:
    """Makes what becomes of one replica's preempted sequences."""
    scenario = setup.scenario
    way = planned("preemption", Preemption, PREEMPTIONS, scenario.preemption, copies_of(scenario))
    link = link_to_host(setup, cost_model) if "moves" in way.asks else None
    return lambda: way.build(moves=link)
