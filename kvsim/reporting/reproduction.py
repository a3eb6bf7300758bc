"""How to make the same numbers again: command lines and hashes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence

from kvsim.reporting.document import Bullets, Code, Paragraph, Section, bullets, section
from kvsim.reporting.forms import shown
from kvsim.reporting.workload import trace_of
from kvsim.runs import Manifest, RunResult
from kvsim.scenario import Scenario

TOLD = (
    "model", "gpu", "tensor_parallel_size", "pipeline_parallel_size", "replicas", "router", "allocator",
    "eviction", "scheduler", "block_size", "enable_prefix_caching", "kv_cache_dtype", "max_num_seqs",
    "max_num_batched_tokens", "gpu_memory_utilization", "cost_model", "engine", "seed",
)  # fmt: skip
"""Settings that decide, of those that all compared scenarios share."""


def reproduction(runs: Mapping[str, RunResult], command: str) -> Section | None:
    """Commands for some runs, by name, and for the report on them."""
    lines = dict.fromkeys(map(replay_command, runs.values()))
    said = "Equal hashes of scenario and trace, and the same kvsim, give the same numbers to the last bit."
    return section(
        "Reproduce",
        Code("\n".join([*lines, command])),
        Paragraph(said),
        hashes(runs),
        shared_settings([scenario_of(run.manifest) for run in runs.values()]),
    )


def replay_command(run: RunResult) -> str:
    """The command line of a run: all that it sets differently from the defaults."""
    name, _ = trace_of(run.manifest)
    out = ["--out", str(run.path)] if run.path else []
    return shlex.join(["kvsim", "replay", name, *_flags(scenario_of(run.manifest)), *out])


def _flags(scenario: Mapping[str, object]) -> Iterator[str]:
    plain = Scenario().model_dump(mode="json")
    for name, value in scenario.items():
        usual = plain.get(name)
        if value == usual or value is None:
            continue
        if name == "slo" and isinstance(value, Mapping):
            for latency, limit in value.items():
                yield from ("--slo", f"{latency}={limit:g}s")
        else:
            for key, part in _parts(name, value, usual):
                yield from ("--set", f"{key}={_written(part)}")


def _parts(name: str, value: object, usual: object) -> Iterator[tuple[str, object]]:
    """A setting, or each that is set of one that has several; a plug-in comes before its options."""
    if not isinstance(value, Mapping):
        yield name, value
        return
    before = usual if isinstance(usual, Mapping) else {}
    if "name" in value:
        yield name, value["name"]
        before = {"name": value["name"]}
    for key, part in value.items():
        if part != before.get(key):
            yield f"{name}.{key}", part


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def scenario_of(manifest: Manifest) -> Mapping[str, object]:
    """The scenario of a run."""
    scenario = manifest.get("scenario")
    return scenario if isinstance(scenario, Mapping) else {}


def hashes(runs: Mapping[str, RunResult]) -> Bullets | None:
    """What identifies each run."""
    return bullets(
        [
            f"{name}: scenario {run.manifest.get('scenario_hash')}, "
            f"trace {trace_of(run.manifest)[1] or 'not hashed'}, kvsim {run.manifest.get('kvsim_version')}"
            for name, run in runs.items()
        ]
    )


def shared_settings(scenarios: Sequence[Mapping[str, object]]) -> Paragraph | None:
    """What is the same in all scenarios, of what decides."""
    first = scenarios[0] if scenarios else {}
    same = [
        f"{name.replace('_', ' ')} {named(first[name])}"
        for name in TOLD
        if first.get(name) is not None and all(one.get(name) == first[name] for one in scenarios)
    ]
    return Paragraph("Settings: " + "; ".join(same) + ".") if same else None


def named(value: object) -> str:
    """A setting; a plug-in by its name and options."""
    if isinstance(value, Mapping):
        options = " ".join(f"{key}={part}" for key, part in value.items() if key != "name")
        return f"{value.get('name')} {options}".strip()
    return shown(value, "text") if not isinstance(value, float) else f"{value:g}"
