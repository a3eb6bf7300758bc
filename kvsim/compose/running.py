"""A replay from its first request to its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path

from kvsim.compose.deployment import deploy, described
from kvsim.core import Request
from kvsim.quotas import Awaited
from kvsim.runs import Recording, RunResult, new_manifest
from kvsim.scenario import Scenario
from kvsim.simulation.cluster import audited
from kvsim.simulation.cluster import simulate as replay
from kvsim.simulation.recorder import Recorder
from kvsim.workload import Trace, TraceOptions, open_trace

Watch = Callable[[Iterable[Request]], Iterable[Request]]
"""Looks on while requests pass."""


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
    recording = Recording(out, overwrite=overwrite, keep=keep, slos=scenario.slo)
    opened = trace if isinstance(trace, Trace) else open_trace(trace, trace_options(scenario))
    deployed = deploy(scenario, leaps=leaps, check=check, verify=verify)
    replicas, slots = deployed.replicas, deployed.replicas[0].allocator.total_slots
    with recording:
        recorder = Recorder(len(replicas), slots, recording, limits=deployed.limits)
        serve = audited if check else replay
        awaited = Awaited(scenario.quotas or {})
        requests = awaited.watch(opened) if scenario.quotas else opened
        serve(watch(requests), replicas, deployed.router, recorder)
        manifest = new_manifest(
            scenario=deployed.scenario.model_dump(mode="json"),
            scenario_hash=deployed.scenario.hash,
            trace={"name": Path(opened.name).name, "sha256": opened.sha256()},
            seed=scenario.seed,
            executor=deployed.execution.facts() if deployed.execution is not None else None,
        )
        result = recording.complete(manifest, recorder.close(), described(deployed), name)
    result.absent = awaited.absent
    return result


def trace_options(scenario: Scenario) -> TraceOptions:
    """How the scenario wants its trace to be read."""
    given = scenario.workload.model_dump(exclude_none=True)
    if given.get("request_rate") == "inf":
        given["request_rate"] = math.inf
    return TraceOptions(**given, seed=scenario.seed, isolation=scenario.isolation)
