"""Traces and runs to look at when nobody has any yet; the traces are those of ``traces/``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kvsim.compose import simulate
from kvsim.runs import run_path
from kvsim.scenario import Scenario
from kvsim.workload import generate, preset, write_trace


class Sample(NamedTuple):
    """How a sample trace is made."""

    preset: str
    requests: int
    seed: int


SAMPLES = {
    "chat": Sample("conversation", 1500, 1),
    "code": Sample("code", 2000, 2),
    "rag": Sample("rag", 1000, 3),
    "agent": Sample("agent", 250, 4),
    "mooncake": Sample("mooncake", 1000, 5),
}
SMALL_GPU = {
    "gpu": "l40s",
    "max_model_len": 8_192,
    "max_num_seqs": 128,
    "slo": {"ttft": 2.0, "tpot": 0.08},
    "workload": {"limit": 600, "speedup": 6.0},
}
"""A deployment on which memory is what runs out, so that allocators differ."""
RUNS: dict[str, dict[str, object]] = {
    "contiguous-max": {"allocator": "contiguous"},
    "contiguous-pow2": {"allocator": "contiguous", "reservation": "pow2"},
    "buddy-pow2": {"allocator": "buddy", "reservation": "pow2"},
    "paged": {"allocator": "paged"},
    "radix": {"allocator": "radix"},
    "paged-small-pool": {"allocator": "paged", "num_gpu_blocks_override": 3_000},
    "paged-static": {"allocator": "paged", "scheduler": "static"},
    "paged-fp8": {"allocator": "paged", "kv_cache_dtype": "fp8"},
    "paged-h200": {"allocator": "paged", "gpu": "h200"},
}


def sample_trace(name: str, folder: Path) -> Path:
    """The file of a sample trace in a folder, made if it is not there."""
    path = folder / f"{name}.jsonl.gz"
    if not path.exists():
        sample = SAMPLES[name]
        folder.mkdir(parents=True, exist_ok=True)
        spec = replace(preset(sample.preset), requests=sample.requests)
        write_trace(generate(spec, sample.seed), str(path), None)
    return path


def sample_runs(traces: Path, runs: Path) -> None:
    """Replay the chat sample on one small GPU in several ways; what is there already stays."""
    trace = sample_trace("chat", traces)
    for name, changes in RUNS.items():
        out = run_path(runs, name)
        if not out.exists():
            simulate(Scenario().changed(**{**SMALL_GPU, **changes}), trace, out=out, keep=False)
