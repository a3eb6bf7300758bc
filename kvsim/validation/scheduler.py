"""vLLM's scheduler, decision by decision: who is admitted, preempted and finished when.

The recordings were made with vLLM's own scheduler and KV-cache manager and a fixed step time, so
there is no noise: any difference is a difference of rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.core import PICOSECONDS, Leap, Request, Sequence
from kvsim.costs.fixed import Fixed
from kvsim.errors import TraceError
from kvsim.memory.paged import Paged
from kvsim.protocols import Allocator
from kvsim.routing import RoundRobin
from kvsim.scheduling.chunked import Chunked
from kvsim.simulation.cluster import simulate
from kvsim.simulation.replica import Replica
from kvsim.simulation.silent import Silent
from kvsim.validation.arguments import Arguments
from kvsim.validation.reference import Mismatch, Verdict, beside, earliest, number, rows
from kvsim.validation.unmodelled import unmodelled
from kvsim.workload import open_trace

MICROSECOND = PICOSECONDS // 1_000_000
FIELDS = ("first_scheduled_us", "first_token_us", "finish_us", "cached", "preemptions")
"""What must be equal for a request to be exact."""
ABOUT = ("engine", "requests")
"""What a recording says of itself."""

Decisions = tuple[int | None, ...]
"""The values of :data:`FIELDS`; None for what never happened."""


class Engine(NamedTuple):
    """The configuration that a recording was made with."""

    num_blocks: int
    block_size: int
    max_num_batched_tokens: int
    max_num_seqs: int
    step_us: int
    prefix_caching: bool = True


class Iteration(NamedTuple):
    """The state right after an iteration, who ended with it gone; arrivals meanwhile not counted."""

    start_us: int
    running: int
    waiting: int
    kv_usage: float

    def __str__(self) -> str:
        return f"{self.running} running, {self.waiting} waiting, {self.kv_usage:.1%} of the KV"


class Decided(Silent):
    """An observer that keeps each request's decisions, and the state of every iteration."""

    def __init__(self) -> None:
        self.requests: dict[int, Decisions] = {}
        self.iterations: list[Iteration] = []

    def leap(self, leap: Leap, allocator: Allocator) -> None:
        """Note the state after the iterations."""
        self._allocator = allocator
        start_us = leap.start // MICROSECOND
        self.iterations.append(Iteration(start_us, leap.running, leap.waiting, self._usage()))

    def _usage(self) -> float:
        return self._allocator.held_slots / self._allocator.total_slots

    def finished(self, sequence: Sequence, replica: int) -> None:
        """Note when everything happened to the request."""
        times = (sequence.scheduled, sequence.first_token, sequence.finished)
        micros = (None if time is None else time // MICROSECOND for time in times)
        counts = (sequence.cached_tokens, sequence.preemptions)
        self.requests[sequence.request.row] = (*micros, *counts)
        state = self.iterations[-1]
        self.iterations[-1] = state._replace(running=state.running - 1, kv_usage=self._usage())


def check_scheduler(
    recording: Mapping[str, Any], path: Path, workload: Path | None, *, leaps: bool
) -> Verdict:
    """Replay the recording's requests on the same engine and compare them one by one."""
    engine = engine_of(recording, path)
    table = rows(path, recording, "requests")
    expected = {
        number(path, f"requests[{i}]", row, "row"): _decisions(path, i, row)
        for i, row in enumerate(table)
    }
    requests = list(recorded_requests(path, table, beside(path, workload)))
    decided = decide(requests, engine, leaps=leaps)
    wrong = [row for row, decisions in expected.items() if decided.requests.get(row) != decisions]
    ignored = unmodelled([Arguments(f"{path}: meta", recording["meta"])], {*Engine._fields, *ABOUT})
    if not wrong:
        return Verdict(len(expected), len(expected), None, ignored)
    states = decide(requests, engine, leaps=False).iterations
    recorded = list(recorded_iterations(recording))
    first = earliest(
        _mismatch(row, expected[row], decided.requests.get(row), recorded, states) for row in wrong
    )
    return Verdict(len(expected), len(expected) - len(wrong), first, ignored)


def engine_of(recording: Mapping[str, Any], path: Path) -> Engine:
    """The engine that a recording was made with."""
    meta = recording.get("meta") or {}
    *numbers, cached = Engine._fields
    values = {field: number(path, "meta", meta, field, least=1) for field in numbers}
    caching = meta.get(cached, True)
    if type(caching) is not bool:
        raise TraceError(f"{path}: meta.{cached} is {caching!r}; accepted: true, false")
    return Engine(**values, prefix_caching=caching)


def _decisions(path: Path, index: int, row: object) -> Decisions:
    return tuple(number(path, f"requests[{index}]", row, field) for field in FIELDS)


def recorded_requests(path: Path, table: list[Any], workload: Path) -> Iterator[Request]:
    """The recorded requests in order of arrival, their prompts from the workload."""
    submitted = {request.row: request for request in open_trace(workload)}
    calls = (
        [number(path, f"requests[{i}]", row, field) for field in ("arrival_us", "row")]
        for i, row in enumerate(table)
    )
    for arrival, row in sorted(calls):
        request = submitted.get(row)
        if request is None:
            raise TraceError(f"{workload}: has no row {row}, which {path} refers to")
        yield request._replace(arrival=arrival * MICROSECOND / PICOSECONDS)


def decide(requests: Iterable[Request], engine: Engine, *, leaps: bool) -> Decided:
    """What kvsim decides for the requests on the engine of a recording."""
    allocator = Paged(
        engine.num_blocks, block_size=engine.block_size, prefix_caching=engine.prefix_caching
    )
    scheduler = Chunked(
        allocator,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        leaps=leaps,
    )
    decided = Decided()
    replica = Replica(0, scheduler, allocator, Fixed(step_time=engine.step_us / 1_000_000))
    simulate(requests, [replica], RoundRobin(), decided)
    return decided


def recorded_iterations(recording: Mapping[str, Any]) -> Iterator[Iteration]:
    """The states that a recording has, if it has any."""
    fields = recording.get("iteration_fields", ())
    for values in recording.get("iterations", ()):
        row = dict(zip(fields, values, strict=False))
        yield Iteration(
            row["start_us"], row["running_after"], row["waiting_after"], row["kv_usage_after"]
        )


def _mismatch(
    row: int,
    expected: Decisions,
    found: Decisions | None,
    recorded: list[Iteration],
    states: list[Iteration],
) -> tuple[int, Mismatch]:
    """The first field of a request that differs, when that was, and what was going on then."""
    found = found or (None,) * len(FIELDS)
    at = next(i for i, value in enumerate(expected) if value != found[i])
    when = min(time for time in (expected[min(at, 2)], found[min(at, 2)]) if time is not None)
    engine, kvsim = _at(recorded, when), _at(states, when)
    explanation = (
        f"request {row}: {FIELDS[at]} is {expected[at]} in the engine and {found[at]} here; "
        f"after the iteration at {when} us the engine had {engine}, kvsim {kvsim}"
    )
    return when, Mismatch(row, FIELDS[at], expected[at], found[at], explanation)


def _at(iterations: list[Iteration], time: int) -> str:
    """The latest state not after a time."""
    earlier = [state for state in iterations if state.start_us <= time]
    return str(earlier[-1]) if earlier else "no iteration yet"
