"""Outputs over managed memory against contiguous memory, for every allocator, under pressure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from kvsim.compose import simulate
from kvsim.core import Request
from kvsim.scenario import Scenario
from kvsim.workload import WorkloadSpec, generate, write_trace
from kvsim.workload.spec import PrefixTree

CASES = (
    ("contiguous", "auto"),
    ("buddy", "auto"),
    ("paged", "auto"),
    ("radix", "auto"),
    ("contiguous", "fp8"),
    ("paged", "fp8"),
    ("paged", "int8"),
)
"""Allocators and types of the KV."""
SHARING: tuple[dict[str, Any], ...] = ({}, {"n": 3}, {}, {"beam_width": 3})
"""What requests ask for, in turn."""
COUNTS = ("num_preemptions", "recomputed_tokens", "num_evictions", "prefix_cache_hit_rate")


def verifications(
    model: str, executor: str, requests: Iterable[Request], folder: Path
) -> Iterator[dict[str, Any]]:
    """A run of each case, in a pool that has room for a part of the requests; all outputs compared."""
    trace = folder / "verified.jsonl"
    write_trace(requests, str(trace))
    for allocator, dtype in CASES:
        given: dict[str, Any] = {"allocator": allocator, "reservation": "oracle"}
        scenario = Scenario(
            model=model,
            executor=executor,
            kv_cache_dtype=dtype,
            num_gpu_blocks_override=256,
            max_model_len=1024,
            max_num_seqs=32,
            max_num_batched_tokens=1024,
            **given,
        )
        result = simulate(scenario, str(trace), verify=True)
        host: Any = result.manifest["host"]
        counts = {name: result.summary[name] for name in COUNTS}
        yield {"allocator": allocator, "kv": dtype, **host["executor"]["verified"], **counts}


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
