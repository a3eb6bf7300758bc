"""Reads runs of vLLM that were recorded request by request and iteration by iteration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kvsim.catalog import load_gpu, load_model
from kvsim.catalog.engines import load_engine
from kvsim.core import Request
from kvsim.errors import TraceError
from kvsim.layout import KVLayout
from kvsim.validation.engine import Setup
from kvsim.validation.measurement import Measurement, Tick
from kvsim.validation.observed import Outcome
from kvsim.validation.reference import beside, number, rows
from kvsim.validation.rows import Row
from kvsim.workload import open_trace

SHAPES = {"llama3-8b": "llama-3-8b", "qwen25-32b": "qwen2.5-32b", "dsv2lite": "deepseek-v2-lite"}
"""Folder names of recorded models, and what they have the shape of."""
RANDOM_EXPERTS = 0.2
"""Share of its experts that a model with random weights uses: nearly all tokens choose the same."""
LATE = 0.001
"""Seconds from a planned call to the real one, where that is not recorded."""
GIB = 2**30


def read_vllm_run(recording: Mapping[str, Any], path: Path, workload: Path | None) -> Measurement:
    """The run in ``recording``, which was read from ``path``, and its workload."""
    steps = rows(path, recording, "iterations")
    table = rows(path, recording, "requests")
    outcomes = {
        number(path, f"requests[{i}]", row, "i"): outcome(path, i, row)
        for i, row in enumerate(table)
    }
    submitted = (called(one, outcomes) for one in open_trace(beside(path, workload)))
    return Measurement(
        path.name.split(".json")[0],
        setup_of(path, recording.get("info")),
        sorted(submitted, key=lambda request: (request.arrival, request.row)),
        outcomes,
        token_gaps(table),
        list(iterations(steps)),
        [Tick(*row[:4]) for row in steps],
        sum(row[9] for row in steps if len(row) > 9),
    )


def outcome(path: Path, index: int, row: Mapping[str, Any]) -> Outcome:
    """What was recorded of one request."""
    try:
        times = (float(row["submit"]), float(row["ttft"]), float(row["e2e"]))
        return Outcome(*times, int(row["output"]), int(row["cached"]))
    except (KeyError, TypeError, ValueError) as error:
        where = f"{path}: requests[{index}]"
        raise TraceError(f"{where} lacks a number: {error}; accepted: a measured run") from None


def called(request: Request, outcomes: Mapping[int, Outcome]) -> Request:
    """The request at the time of its real call; a little late where that is not recorded."""
    known = outcomes.get(request.row)
    return request._replace(arrival=known.submit if known else (request.arrival or 0.0) + LATE)


def token_gaps(table: list[Any]) -> Any:
    """Seconds between the tokens of each request, in one array."""
    import numpy as np

    return np.concatenate([np.diff(row.get("token_times", [])) for row in table])


def iterations(table: list[Any]) -> Iterator[Row]:
    """The recorded iterations that did something: those with output, or with anybody there."""
    for row in table:
        if len(row) > 6 or row[1] or row[2]:
            yield Row(row[0], row[1], row[2], row[3], row[6] if len(row) > 6 else 0)


def setup_of(path: Path, info: Any) -> Setup:
    """The engine that ``info`` describes."""
    arguments = (info or {}).get("engine_args", {})
    folder = str(arguments.get("model", "")).rstrip("/").rpartition("/")[2]
    layout = KVLayout(
        load_model(SHAPES.get(folder, folder)),
        arguments.get("kv_cache_dtype", "auto"),
        arguments.get("tensor_parallel_size", 1),
    )
    random = arguments.get("load_format") == "dummy"
    return Setup(
        layout,
        load_gpu("h200"),
        load_engine("vllm-0.23"),
        num_blocks=number(path, "info", info, "num_gpu_blocks"),
        block_size=number(path, "info", info, "block_size"),
        max_num_seqs=number(path, "info", info, "max_num_seqs"),
        max_num_batched_tokens=number(path, "info", info, "max_num_batched_tokens"),
        offloading=round(arguments.get("kv_offloading_size", 0) * GIB),
        step={"experts_in_use": RANDOM_EXPERTS} if random else {},
    )
