"""Reads runs of vLLM that were recorded request by request and iteration by iteration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvsim.catalog.engines import load_engine
from kvsim.catalog.hardware import Gpu
from kvsim.core import Request
from kvsim.errors import TraceError, shown
from kvsim.validation.arguments import Arguments
from kvsim.validation.device import device_of
from kvsim.validation.engine import Setup
from kvsim.validation.measurement import Measurement, Tick
from kvsim.validation.observed import Outcome
from kvsim.validation.reference import beside, number, rows
from kvsim.validation.rows import Row
from kvsim.validation.started import ENGINE, layout_of, options_of
from kvsim.validation.unmodelled import MEMORY, unmodelled
from kvsim.workload import open_trace

if TYPE_CHECKING:
    from kvsim.validation.measurement import Floats

FIELDS = ["t", "running", "waiting", "kv_usage", "prefix_queries", "prefix_hits", "gen_tokens",
          "prompt_tokens", "cached_prompt_tokens", "preempted"]  # fmt: skip
"""What a recorded iteration begins with; those without output end before the tokens."""
RECORDED = ("num_gpu_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens")
"""What the engine made of its arguments."""
ASSUMED = "h200"
"""The GPU of a recording that names none."""
LATE = 0.001
"""Seconds from a planned call to the real one, where that is not recorded."""


def read_vllm_run(
    recording: Mapping[str, Any], path: Path, workload: Path | None, gpu: Gpu | None = None
) -> Measurement:
    """The run in ``recording``, which was read from ``path``, and its workload.

    ``gpu``: what it ran on, whatever is recorded.
    """
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
        setup_of(path, recording.get("info"), gpu),
        served(listed, outcomes, beside(path, workload), called_of(path, recording, listed)),
        outcomes,
        token_gaps([listed[row] for row in sorted(outcomes)]),
        list(iterations(steps)),
        [Tick(*row[:4]) for row in steps],
        sum(row[9] for row in steps if len(row) > 9) if steps else None,
    )


def called_of(path: Path, recording: Mapping[str, Any], listed: Iterable[int]) -> float:
    """How many of the workload's first requests were called, as far as that is known: else all."""
    if recording.get("n_requests") is None:
        return inf
    return max(number(path, "run", recording, "n_requests"), max(listed) + 1)


def served(
    listed: Mapping[int, tuple[str, Mapping[str, Any]]],
    outcomes: Mapping[int, Outcome],
    source: Path,
    calls: float,
) -> list[Request]:
    """The workload's requests at the times of their calls, in order, but those that were refused."""
    known = {request.row: request for request in open_trace(source)}
    for where, row in listed.values():
        check_submitted(where, row, known, source)
    times = {at: seconds(where, row, "submit") for at, (where, row) in listed.items()}
    gone = {at for at, (_, row) in listed.items() if refused(row)}
    taken = [
        called(request, times, outcomes)
        for at, request in known.items()
        if at < calls and at not in gone
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


def seconds(where: str, row: Any, field: str) -> float:
    """A time of a request."""
    value: Any = row.get(field) if isinstance(row, Mapping) else None
    if type(value) not in (int, float) or not 0 <= value < inf:
        raise TraceError(f"{where}.{field} is {shown(value)}; accepted: seconds from 0")
    return float(value)


def count(where: str, row: Any, field: str, least: int = 0) -> int:
    """A number of tokens of a request."""
    value: Any = row.get(field) if isinstance(row, Mapping) else None
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
    """The recorded iterations, if they were, each with the fields that it must have."""
    if not recording.get("iterations"):
        return []
    known = recording.get("iteration_fields", FIELDS)
    if not isinstance(known, list) or known[: len(FIELDS)] != FIELDS:
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


def setup_of(path: Path, info: Any, gpu: Gpu | None) -> Setup:
    """The engine that ``info`` describes; the GPU is :data:`ASSUMED` if neither it nor ``gpu`` says."""
    given = info.get("engine_args") if isinstance(info, Mapping) else None
    arguments = Arguments(f"{path}: info.engine_args", given)
    recorded = Arguments(f"{path}: info", info)
    compilation = arguments.inner("compilation_config")
    arguments.only("data_parallel_size", 1)
    layout = layout_of(arguments)
    options = options_of(arguments, [recorded, arguments, compilation])
    blocks, size, sequences, tokens = (number(path, "info", info, it, least=1) for it in RECORDED)
    return Setup(
        layout,
        device_of(recorded, gpu, ASSUMED, "assumption"),
        load_engine(ENGINE),
        num_blocks=blocks,
        block_size=size,
        max_num_seqs=sequences,
        max_num_batched_tokens=tokens,
        unmodelled=unmodelled(
            [recorded, arguments, compilation], (*RECORDED, *MEMORY, "engine_args")
        ),
        **options,
    )
