"""The four allocators, and swapping, on one workload: simulated and executed, and how these differ."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from kvsim.compose import deploy, simulate, trace_options
from kvsim.core import PICOSECONDS, BatchShape, Leap
from kvsim.costs import Hosted
from kvsim.protocols import Allocator
from kvsim.scenario import Scenario
from kvsim.simulation.cluster import simulate as serve
from kvsim.simulation.silent import Silent
from kvsim.workload import WorkloadSpec, generate, open_trace, write_trace
from kvsim.workload.spec import PrefixTree

CASES: dict[str, dict[str, Any]] = {
    "contiguous (max)": {"allocator": "contiguous", "reservation": "max"},
    "buddy (pow2)": {"allocator": "buddy", "reservation": "pow2"},
    "paged": {"allocator": "paged"},
    "radix": {"allocator": "radix"},
    "paged, swapping": {
        "allocator": "paged",
        "preemption": {"name": "swap", "copies": "gathered"},
    },
}
"""What is compared, each with settings of its own."""
METRICS = (
    "mean_kv_cache_usage",
    "utilisation",
    "mean_batch",
    "output_throughput",
    "mean_ttft_ms",
    "median_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "median_tpot_ms",
    "p99_tpot_ms",
    "mean_e2el_ms",
    "duration",
    "num_iterations",
)
"""What is compared; the rest is in the runs."""
COUNTS = (
    "num_preemptions",
    "swapped_tokens",
    "prefix_cache_hit_rate",
    "completed",
    "busy_fraction",
)
"""What is shown and not judged."""
WARMING = 24
"""Requests of a run before all others, of which nothing is kept: the first of a process is slower."""
Figures = dict[str, float]
Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Setup:
    """One deployment and one workload."""

    model: str = "llama-3-8b"
    gpu: str = "h200"
    executor: str = "gpu"
    blocks: int = 1024
    """Of 16 tokens: a pool small enough to matter."""
    max_model_len: int = 2048
    max_num_seqs: int = 64
    requests: int = 240
    rate: float = 40.0
    prompt: str = "lognormal:400:0.6"
    output: str = "lognormal:160:0.7"
    prefix_tokens: int = 256
    seed: int = 7

    def workload(self, seed: int) -> WorkloadSpec:
        """Prompts that share one of eight beginnings."""
        return WorkloadSpec(
            requests=self.requests,
            rate=self.rate,
            prompt=self.prompt,
            output=self.output,
            prefix=PrefixTree(groups=8, tokens=self.prefix_tokens),
            hash_block=16,
            max_tokens=self.max_model_len,
        )

    def scenario(self, **settings: Any) -> Scenario:
        """The deployment with further settings."""
        return Scenario(
            model=self.model,
            gpu=self.gpu,
            num_gpu_blocks_override=self.blocks,
            max_model_len=self.max_model_len,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=2048,
            **settings,
        )

    def write(self, path: Path, seed: int) -> str:
        """The workload as a trace file."""
        write_trace(generate(self.workload(seed), seed), str(path))
        return str(path)


class Overhead(NamedTuple):
    """Seconds that an iteration takes beyond its operators, as :class:`.Hosted` is told."""

    host: float = 0.0
    host_per_sequence: float = 0.0


class Steps(Silent):
    """Keeps every iteration: its shape and its picoseconds."""

    def __init__(self) -> None:
        self.rows: list[tuple[BatchShape, int]] = []

    def leap(self, leap: Leap, allocator: Allocator) -> None:
        """An iteration was executed."""
        self.rows.append((leap.shape, leap.end - leap.start))


def calibration(setup: Setup, folder: Path) -> dict[str, Any]:
    """What an iteration takes beyond its operators, and residuals, from a run of its own.

    ``overhead`` is what the simulation is told, of the median iteration; ``host`` are the seconds that the
    device was not busy, in the mean.
    """
    steps, device = served(setup, folder)
    bare = predictor(setup, Overhead())
    overhead = overhead_of(
        [
            (shape.decodes, (span - bare.time(shape)) / PICOSECONDS)
            for shape, span in steps.rows
            if not shape.prefills
        ]
    )
    total = sum(span for _, span in steps.rows) / PICOSECONDS
    return {
        "iterations": len(steps.rows),
        "seconds": total,
        "device_seconds": device,
        "host": (total - device) / len(steps.rows) if device is not None else None,
        "overhead": overhead._asdict(),
        "residuals": residuals(steps, predictor(setup, overhead)),
        "by_tokens": by_tokens(steps, bare),
    }


def served(setup: Setup, folder: Path) -> tuple[Steps, float | None]:
    """Every iteration of a run of the calibrating workload, and the seconds of the device."""
    trace = setup.write(folder / "calibration.jsonl", setup.seed + 1)
    scenario = setup.scenario(executor=setup.executor, cost_model="hosted")
    deployed = deploy(scenario)
    steps, opened = Steps(), open_trace(trace, trace_options(scenario))
    serve(opened, deployed.replicas, deployed.router, steps)
    assert deployed.execution is not None
    device: Any = deployed.execution.facts()["device_seconds"]
    return steps, device


def overhead_of(gaps: Iterable[tuple[int, float]]) -> Overhead:
    """A line through seconds by running sequences, neither of its numbers below 0.

    It follows the median of each number of sequences, counted as often as there are iterations, so
    that pauses do not move it; half of all iterations lie above.
    """
    groups: dict[int, list[float]] = {}
    for sequences, gap in gaps:
        groups.setdefault(sequences, []).append(gap)
    slope = 0.0
    if len(groups) > 1:
        weights = np.sqrt([len(found) for found in groups.values()])
        middles = [median(found) for found in groups.values()]
        slope = max(0.0, float(np.polyfit([*groups], middles, 1, w=weights)[0]))
    rest = [gap - slope * count for count, found in groups.items() for gap in found]
    return Overhead(max(0.0, median(rest)), slope)


def by_tokens(steps: Steps, bare: Hosted) -> list[Figures]:
    """Measured and predicted seconds, overhead left out, by the new tokens of an iteration."""
    groups: dict[int, list[tuple[int, int]]] = {}
    for shape, span in steps.rows:
        tokens = shape.decodes + shape.prefill_tokens
        groups.setdefault(tokens.bit_length(), []).append((bare.time(shape), span))
    return [
        {
            "tokens_below": float(1 << bits),
            "iterations": float(len(rows)),
            "predicted": median(predicted for predicted, _ in rows) / PICOSECONDS,
            "measured": median(span for _, span in rows) / PICOSECONDS,
        }
        for bits, rows in sorted(groups.items())
    ]


def predictor(setup: Setup, overhead: Overhead) -> Hosted:
    """The cost model of the simulated runs."""
    from kvsim.catalog.hardware import load_gpu
    from kvsim.catalog.models import load_model
    from kvsim.layout import KVLayout

    return Hosted(KVLayout(load_model(setup.model)), load_gpu(setup.gpu), **overhead._asdict())


def residuals(steps: Steps, model: Hosted) -> dict[str, Figures]:
    """Predicted over measured time, less 1, by kind of batch: the median iteration, and the sum."""
    kinds: dict[str, list[tuple[int, int]]] = {"decode": [], "mixed": [], "prompt": []}
    for shape, span in steps.rows:
        kind = "decode" if not shape.prefills else "mixed" if shape.decodes else "prompt"
        kinds[kind].append((model.time(shape), span))
    return {
        kind: {
            "iterations": len(rows),
            "median": median(predicted / measured for predicted, measured in rows) - 1,
            "sum": sum(predicted for predicted, _ in rows) / sum(span for _, span in rows) - 1,
        }
        for kind, rows in kinds.items()
        if rows
    }


def compared(setup: Setup, folder: Path, log: Log) -> Iterator[dict[str, Any]]:
    """Both runs of every case, with the error of each metric.

    What the simulation is told of the host is read off a run of another seed, of the same allocator in
    all cases, just before: other machines on the host make it slower for minutes.
    """
    trace = setup.write(folder / "workload.jsonl", setup.seed)
    served(replace(setup, requests=min(WARMING, setup.requests)), folder)
    for case, given in CASES.items():
        kept = folder / "-".join(re.findall(r"\w+", case))
        told = calibration(setup, folder)
        hosted = {"cost_model": {"name": "hosted", **told["overhead"]}}
        executed = run(setup.scenario(executor=setup.executor, **given), trace, kept, "executed")
        simulated = run(setup.scenario(**hosted, **given), trace, kept, "simulated")
        errors = {
            name: simulated[name] / executed[name] - 1 for name in METRICS if executed.get(name)
        }
        middle = median(map(abs, errors.values()))
        log(f"{case}: median error {middle:.1%}; told {told['overhead']}")
        yield {
            "case": case,
            "calibration": told,
            "executed": executed,
            "simulated": simulated,
            "errors": errors,
            "median_error": middle,
        }


def run(scenario: Scenario, trace: str, folder: Path, kind: str) -> Figures:
    """One run, kept in a folder of its own, as figures.

    Iteration by iteration: how memory divides is noted at the end of each leap, and what is executed
    takes none.
    """
    out = folder.with_name(f"{folder.name}-{kind}")
    result = simulate(scenario, trace, out=out, overwrite=True, leaps=False, name=out.name)
    summary: Any = dict(result.summary)
    memory = summary["kv_memory"]
    figures: Figures = {key: summary[key] for key in METRICS if key in summary}
    figures["utilisation"] = memory["used"] / sum(memory.values())
    figures["mean_batch"] = summary["total_output_tokens"] / summary["num_iterations"]
    for key in COUNTS:
        figures[key] = summary[key]
    host: Any = result.manifest["host"]
    device = host.get("executor", {}).get("device_seconds")
    if device is not None:
        busy = summary["busy_fraction"] * summary["duration"]
        figures["host_ms"] = 1e3 * (busy - device) / summary["num_iterations"]
    return figures
