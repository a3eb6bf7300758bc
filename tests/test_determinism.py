"""The same inputs give the same bytes: in any process, with any hash seed, alone or side by side."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvsim import Scenario, simulate
from kvsim.compose.engine import built
from kvsim.costs import COST_MODELS

TABLES = ("requests.parquet", "samples.parquet", "summary.json")


def kvsim(seed: str, *arguments: str | Path) -> bytes:
    """What the command line prints in a process whose hashes are seeded so."""
    command = [sys.executable, "-m", "kvsim", *map(str, arguments)]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.run(command, env=environment, check=True, capture_output=True).stdout


@pytest.mark.parametrize("allocator", ["paged", "radix"])
def test_a_run_has_the_same_bytes_whatever_the_hash_seed(
    root: Path, tmp_path: Path, allocator: str
) -> None:
    written = []
    for seed in ("0", "1", "31337"):
        out = tmp_path / seed
        kvsim(
            seed,
            *("replay", root / "traces" / "chat.jsonl.gz", "--limit", "150", "--out", out),
            *("--allocator", allocator, "--replicas", "3", "--router", "power-of-two"),
            *("--num-gpu-blocks-override", "600"),
        )
        written.append([(out / name).read_bytes() for name in TABLES])
    assert written[0] == written[1] == written[2]


def test_a_comparison_says_the_same_with_any_number_of_processes(root: Path) -> None:
    trace = root / "traces" / "chat.jsonl.gz"
    arguments = ("compare", trace, "--limit", "60", "--allocators", "paged,radix,buddy", "--json")
    alone, together = (kvsim(jobs, *arguments, "--jobs", jobs) for jobs in ("1", "3"))
    assert alone == together


@pytest.mark.parametrize("cost_model", sorted(COST_MODELS))
def test_times_are_those_of_a_fresh_cost_model_whatever_was_replayed_before(
    root: Path, cost_model: str
) -> None:
    def summary(**settings: object) -> dict[str, object]:
        scenario = Scenario.model_validate({"cost_model": cost_model, **settings})
        return simulate(scenario, root / "traces" / "chat.jsonl.gz").summary

    few = {"workload": {"limit": 40}}
    built.cache_clear()
    fresh = summary(**few)
    summary(workload={"limit": 60, "request_rate": "inf"}, max_num_batched_tokens=512)
    summary(**few, gpu="l40s")
    assert summary(**few) == fresh
    assert built.cache_info().hits >= 2
