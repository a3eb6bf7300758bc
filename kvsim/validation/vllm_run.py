"""Reads runs of vLLM that were recorded request by request and iteration by iteration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvsim.catalog import load_gpu, load_model
from kvsim.catalog.engines import load_engine
from kvsim.catalog.models import entries
from kvsim.core import Request
from kvsim.errors import TraceError, shown
from kvsim.layout import KVLayout
from kvsim.validation.engine import Setup
from kvsim.validation.measurement import Measurement, Tick
from kvsim.validation.observed import Outcome
from kvsim.validation.reference import beside, number, rows
from kvsim.validation.rows import Row
from kvsim.workload import open_trace

if TYPE_CHECKING:
    from kvsim.validation.measurement import Floats

SHAPES = {"dsv2lite": "deepseek-v2-lite"}
"""Folder names of recorded models that resemble no name of the catalog, and whose shape they have."""
FIELDS = ["t", "running", "waiting", "kv_usage", "prefix_queries", "prefix_hits", "gen_tokens",
          "prompt_tokens", "cached_prompt_tokens", "preempted"]  # fmt: skip
"""What a recorded iteration begins with; those without output end before the tokens."""
UNMODELLED = ("async_scheduling", "enable_chunked_prefill")
"""Arguments without which this engine is another one."""
RANDOM_EXPERTS = 0.2
"""Share of its experts that a model with random weights uses: nearly all tokens choose the same."""
LATE = 0.001
"""Seconds from a planned call to the real one, where that is not recorded."""
GIB = 2**30


def read_vllm_run(recording: Mapping[str, Any], path: Path, workload: Path | None) -> Measurement:
    """The run in ``recording``, which was read from ``path``, and its workload."""
    steps = steps_of(path, recording)
    listed = {
        number(path, f"requests[{i}]", row, "i"): (f"{path}: requests[{i}]", row)
        for i, row in enumerate(rows(path, recording, "requests"))
    }
    outcomes = {row: outcome(*one) for row, one in listed.items() if answered(one[1])}
    if not outcomes:
        raise TraceError(f"{path}: no request has a ttft and an e2e; accepted: a measured run")
    return Measurement(
        path.name.split(".json")[0],
        setup_of(path, recording.get("info")),
        served(listed, outcomes, beside(path, workload)),
        outcomes,
        token_gaps([listed[row] for row in sorted(outcomes)]),
        list(iterations(steps)),
        [Tick(*row[:4]) for row in steps],
        sum(row[9] for row in steps if len(row) > 9),
    )


def served(
    listed: Mapping[int, tuple[str, Mapping[str, Any]]],
    outcomes: Mapping[int, Outcome],
    source: Path,
) -> list[Request]:
    """The workload's requests at the times of their calls, in order, but those that were refused."""
    submitted = {request.row: request for request in open_trace(source)}
    for where, row in listed.values():
        check_submitted(where, row, submitted, source)
    calls = {at: seconds(where, row, "submit") for at, (where, row) in listed.items()}
    gone = {at for at, (_, row) in listed.items() if refused(row)}
    taken = [
        called(request, calls, outcomes) for at, request in submitted.items() if at not in gone
    ]
    return sorted(taken, key=lambda request: (request.arrival, request.row))


def answered(row: Mapping[str, Any]) -> bool:
    """Whether a request got its whole answer while the run lasted."""
    return row.get("ttft") is not None and row.get("e2e") is not None


def refused(row: Mapping[str, Any]) -> bool:
    """Whether the engine ended a request without a token."""
    return row.get("ttft") is None and row.get("e2e") is not None


def outcome(where: str, row: Mapping[str, Any]) -> Outcome:
    """What was recorded of one request; an older engine may not have counted what hit."""
    submit, ttft, e2e = (seconds(where, row, field) for field in ("submit", "ttft", "e2e"))
    cached = None if row.get("cached") is None else count(where, row, "cached")
    return Outcome(submit, ttft, e2e, count(where, row, "output", least=1), cached)


def seconds(where: str, row: Mapping[str, Any], field: str) -> float:
    """A time of a request."""
    value: Any = row.get(field)
    if type(value) not in (int, float) or not 0 <= value < inf:
        raise TraceError(f"{where}.{field} is {shown(value)}; accepted: seconds from 0")
    return float(value)


def count(where: str, row: Mapping[str, Any], field: str, least: int = 0) -> int:
    """A number of tokens of a request."""
    value: Any = row.get(field)
    if type(value) is not int or value < least:
        raise TraceError(
            f"{where}.{field} is {shown(value)}; accepted: a whole number from {least}"
        )
    return value


def check_submitted(
    where: str, row: Mapping[str, Any], submitted: Mapping[int, Request], source: Path
) -> None:
    """Refuse a record of something else than what the workload's row asks for."""
    request = submitted.get(row["i"])
    if request is None:
        raise TraceError(f"{where}.i is {row['i']}, but {source} has {len(submitted)} requests")
    if row.get("prompt", request.prompt_tokens) != request.prompt_tokens:
        raise TraceError(
            f"{where}.prompt is {shown(row['prompt'])}, but {request.prompt_tokens} in row {row['i']} "
            f"of {source}; accepted: the workload that was served"
        )


def called(
    request: Request, calls: Mapping[int, float], outcomes: Mapping[int, Outcome]
) -> Request:
    """The request as it was called and answered; a little late where that is not recorded."""
    planned = (request.arrival or 0.0) + LATE
    known = outcomes.get(request.row)
    output = known.output if known else request.output_tokens
    return request._replace(arrival=calls.get(request.row, planned), output_tokens=output)


def token_gaps(table: Iterable[tuple[str, Mapping[str, Any]]]) -> Floats | None:
    """Seconds between the tokens of each request, in one array; None if they were not recorded."""
    import numpy as np

    gaps = []
    for where, row in table:
        try:
            gaps.append(np.diff(np.asarray(row.get("token_times") or [], float)))
        except (TypeError, ValueError):
            raise TraceError(f"{where}.token_times: accepted: a list of seconds") from None
    found = np.concatenate(gaps)
    return found if len(found) else None


def steps_of(path: Path, recording: Mapping[str, Any]) -> list[list[Any]]:
    """The recorded iterations, each with the fields that it must have."""
    known = recording.get("iteration_fields", FIELDS)
    if known[: len(FIELDS)] != FIELDS:
        raise TraceError(f"{path}: iteration_fields are others; accepted: {', '.join(FIELDS)}")
    steps = rows(path, recording, "iterations")
    for i, row in enumerate(steps):
        if not (isinstance(row, list) and len(row) > 3 and all(map(is_number, row))):
            raise TraceError(
                f"{path}: iterations[{i}] is {shown(row)}; accepted: numbers, 4 or more"
            )
    return steps


def is_number(value: object) -> bool:
    """Whether a value can be computed with."""
    return type(value) in (int, float) and isfinite(value)  # type: ignore[arg-type]


def iterations(table: list[Any]) -> Iterator[Row]:
    """The recorded iterations; the empty ones, too, that follow a busy period."""
    for row in table:
        yield Row(row[0], row[1], row[2], row[3], row[6] if len(row) > 6 else 0)


def setup_of(path: Path, info: Any) -> Setup:
    """The engine that ``info`` describes."""
    arguments = arguments_of(path, info)
    layout = KVLayout(
        load_model(shape_of(str(arguments.get("model", "")))),
        arguments.get("kv_cache_dtype", "auto"),
        arguments.get("tensor_parallel_size", 1),
    )
    random = arguments.get("load_format") == "dummy"
    sizes = info.get("cudagraph_capture_sizes")
    return Setup(
        layout,
        load_gpu("h200"),
        load_engine("vllm-0.23"),
        num_blocks=number(path, "info", info, "num_gpu_blocks"),
        block_size=number(path, "info", info, "block_size"),
        max_num_seqs=number(path, "info", info, "max_num_seqs"),
        max_num_batched_tokens=number(path, "info", info, "max_num_batched_tokens"),
        offloading=round(arguments.get("kv_offloading_size", 0) * GIB),
        prefix_caching=arguments.get("enable_prefix_caching", True),
        captured=None if sizes is None else max(sizes, default=0),
        step={"experts_in_use": RANDOM_EXPERTS} if random else {},
    )


def arguments_of(path: Path, info: Any) -> dict[str, Any]:
    """The arguments that the engine was started with and that say something."""
    given = info.get("engine_args") if isinstance(info, Mapping) else None
    if not isinstance(given, Mapping):
        raise TraceError(f"{path}: info.engine_args is {shown(given)}; accepted: an object")
    for name in UNMODELLED:
        if given.get(name) is False:
            raise TraceError(f"{path}: info.engine_args.{name} is False; accepted: True")
    return {name: value for name, value in given.items() if value is not None}


def shape_of(model: str) -> str:
    """The catalog's name of a model whose folder may spell it without punctuation."""
    folder = model.rstrip("/").rpartition("/")[2]
    alike = [name for name in entries() if plain(name) == plain(folder)]
    return SHAPES.get(folder) or (alike[0] if alike else folder)


def plain(name: str) -> str:
    """Letters and digits alone."""
    return "".join(filter(str.isalnum, name.lower()))
