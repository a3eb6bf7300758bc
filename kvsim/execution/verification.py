"""Outputs over managed memory against contiguous memory, for every allocator, under pressure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from kvsim.compose import simulate
from kvsim.core import Request
from kvsim.scenario import Component, Scenario
from kvsim.workload import WorkloadSpec, generate, write_trace
from kvsim.workload.spec import PrefixTree

RECOMPUTED = (
    ("contiguous", "auto", "recompute"),
    ("buddy", "auto", "recompute"),
    ("paged", "auto", "recompute"),
    ("radix", "auto", "recompute"),
    ("contiguous", "fp8", "recompute"),
    ("paged", "fp8", "recompute"),
    ("paged", "int8", "recompute"),
)
SWAPPED = (
    ("contiguous", "auto", "swap"),
    ("paged", "int8", "swap"),
    ("radix", "fp8", "swap"),
)
"""Allocators, types of the KV, and what becomes of it in a preemption."""
Cases = Iterable[tuple[str, str, str]]
SHARING: tuple[dict[str, Any], ...] = ({}, {"n": 3}, {}, {"beam_width": 3})
"""What requests ask for, in turn."""
COUNTS = (
    "num_preemptions",
    "recomputed_tokens",
    "swapped_tokens",
    "num_evictions",
    "prefix_cache_hit_rate",
)


def verifications(
    model: str, executor: str, cases: Cases, requests: Iterable[Request], folder: Path
) -> Iterator[dict[str, Any]]:
    """A run of each case, in a pool that has room for a part of the requests; all outputs compared."""
    trace = folder / "verified.jsonl"
    write_trace(requests, str(trace))
    for allocator, dtype, way in cases:
        given: dict[str, Any] = {"allocator": allocator, "reservation": "oracle"}
        scenario = Scenario(
            model=model,
            executor=executor,
            kv_cache_dtype=dtype,
            num_gpu_blocks_override=256,
            max_model_len=1024,
            max_num_seqs=32,
            max_num_batched_tokens=1024,
            preemption=Component(name=way),
            **given,
        )
        result = simulate(scenario, str(trace), verify=True)
        host: Any = result.manifest["host"]
        counts = {name: result.summary[name] for name in COUNTS}
        case = {"allocator": allocator, "kv": dtype, "preemption": way}
        yield {**case, **host["executor"]["verified"], **counts}


def workload() -> Iterator[Request]:
    """Prompts with shared beginnings, every other request with several answers."""
    spec = WorkloadSpec(
        requests=40,
        rate=100.0,
        prompt="lognormal:200:0.6",
        output="uniform:20:100",
        prefix=PrefixTree(groups=4, tokens=128),
        hash_block=16,
        max_tokens=800,
    )
    for request, shared in zip(generate(spec, 3), cycle(SHARING), strict=False):
        yield request._replace(**shared)
