"""A run as a timeline that Perfetto (ui.perfetto.dev) and chrome://tracing open.

Each replica is a process with counters of its memory and queue; each request is three slices, queue,
prefill and decode, on a lane that no other request uses at the time. The file is Chrome's trace
event format, JSON with times in microseconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import orjson

from kvsim.files import whole_file
from kvsim.tables import POOL_PARTS, RequestTable, SampleTable

if TYPE_CHECKING:
    from kvsim.runs import RunResult

MOST_REQUESTS = 100_000
"""Requests that are drawn: the first ones to arrive. Perfetto does not digest many more."""
MICROSECONDS = 1e6

Event = dict[str, object]


class Span(NamedTuple):
    """What is drawn of one request; times in seconds."""

    arrival: float
    scheduled: float
    first_token: float
    finished: float
    row: int
    replica: int
    arguments: Event


def write_timeline(result: RunResult, path: Path) -> int:
    """Write the timeline of a run; returns how many requests it shows (:data:`MOST_REQUESTS`)."""
    served = result.requests.served()
    spans = _spans(served)
    with whole_file(path) as file:
        about = {"run": result.name, "requests": len(served), "requests_shown": len(spans)}
        file.write(b'{"displayTimeUnit":"ms","otherData":' + orjson.dumps(about))
        file.write(b',"traceEvents":[\n')
        separator = b""
        for event in _events(spans, result.samples):
            file.write(separator + orjson.dumps(event))
            separator = b",\n"
        file.write(b"\n]}\n")
    return len(spans)


def _spans(served: RequestTable) -> list[Span]:
    """The first requests by arrival."""
    order = served.arrival.argsort(kind="stable")[:MOST_REQUESTS]
    return [
        Span(
            float(served.arrival[i]),
            float(served.scheduled[i]),
            float(served.first_token[i]),
            float(served.finished[i]),
            int(served.row[i]),
            int(served.replica[i]),
            {
                "id": served.id[i],
                "prompt_tokens": int(served.prompt_tokens[i]),
                "output_tokens": int(served.output_tokens[i]),
                "cached_tokens": int(served.cached_tokens[i]),
                "preemptions": int(served.preemptions[i]),
            },
        )
        for i in order.tolist()
    ]


def _events(spans: list[Span], samples: SampleTable) -> Iterator[Event]:
    for replica in sorted({span.replica for span in spans} | set(samples.replica.tolist())):
        yield from _process(replica)
    yield from _counters(samples)
    yield from _requests(spans)


def _process(replica: int) -> Iterator[Event]:
    name = {"name": f"replica {replica}"}
    yield {"ph": "M", "name": "process_name", "pid": replica, "tid": 0, "args": name}
    order = {"sort_index": replica}
    yield {"ph": "M", "name": "process_sort_index", "pid": replica, "tid": 0, "args": order}


def _counters(samples: SampleTable) -> Iterator[Event]:
    """A counter holds from its event on, a sample since the one before: so shift by one."""
    groups = {"KV slots": POOL_PARTS, "requests": ("running", "waiting"), "batch": ("batch",)}
    for replica in samples.by_replica():
        starts = [0.0, *replica.time.tolist()[:-1]]
        pid = int(replica.replica[0])
        for name, columns in groups.items():
            for start, *values in zip(
                starts, *(getattr(replica, column).tolist() for column in columns), strict=True
            ):
                arguments = dict(zip(columns, values, strict=True))
                yield {"ph": "C", "name": name, "pid": pid, "ts": _us(start), "args": arguments}


def _requests(spans: list[Span]) -> Iterator[Event]:
    """Slices; a lane is free again when its request has finished."""
    lanes = _Lanes()
    for span in spans:
        lane, new = lanes.take(span)
        if new:
            name = {"name": f"requests, lane {lane}"}
            yield {
                "ph": "M",
                "name": "thread_name",
                "pid": span.replica,
                "tid": lane,
                "args": name,
            }
        yield from _slices(span, lane)


def _slices(span: Span, lane: int) -> Iterator[Event]:
    phases = (
        ("queue", span.arrival, span.scheduled),
        ("prefill", span.scheduled, span.first_token),
        ("decode", span.first_token, span.finished),
    )
    for name, start, end in phases:
        if end > start:
            yield {
                "ph": "X",
                "name": name,
                "cat": f"request {span.row}",
                "pid": span.replica,
                "tid": lane,
                "ts": _us(start),
                "dur": round(_us(end) - _us(start), 3),
                "args": {"row": span.row, **span.arguments},
            }


class _Lanes:
    """Lanes of each replica, from 1; the lowest free one is used again."""

    def __init__(self) -> None:
        self._busy: dict[int, list[tuple[float, int]]] = {}
        self._free: dict[int, list[int]] = {}
        self._lanes: dict[int, int] = {}

    def take(self, span: Span) -> tuple[int, bool]:
        """A lane for a request that arrives no earlier than those before, and whether it is new."""
        busy = self._busy.setdefault(span.replica, [])
        free = self._free.setdefault(span.replica, [])
        while busy and busy[0][0] <= span.arrival:
            heapq.heappush(free, heapq.heappop(busy)[1])
        new = not free
        if new:
            self._lanes[span.replica] = self._lanes.get(span.replica, 0) + 1
        lane = self._lanes[span.replica] if new else heapq.heappop(free)
        heapq.heappush(busy, (span.finished, lane))
        return lane, new


def _us(seconds: float) -> float:
    """Microseconds, to the nanosecond: what the viewer resolves."""
    return round(seconds * MICROSECONDS, 3)
