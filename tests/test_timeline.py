"""The timeline: valid trace events, slices that do not overlap, counters of each replica."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvsim.timeline
from kvsim.runs import RunResult
from kvsim.timeline import write_timeline
from tests.recorded import record, served

durations = st.floats(0, 5).map(lambda value: round(value, 2))
lives = st.lists(st.tuples(durations, durations, durations, st.integers(1, 20)), max_size=15)


def events(result: RunResult, folder: Path, phase: str) -> list[dict[str, Any]]:
    path = folder / "timeline.json"
    write_timeline(result, path)
    document = json.loads(path.read_text())
    return [event for event in document["traceEvents"] if event["ph"] == phase]


def lanes(slices: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    grouped = defaultdict(list)
    for event in slices:
        grouped[event["pid"], event["tid"]].append(event)
    yield from (sorted(lane, key=lambda event: event["ts"]) for lane in grouped.values())


@given(lives)
def test_slices_of_a_lane_never_overlap(tmp_path_factory: Any, lives: list[Any]) -> None:
    sequences = [
        served(row, arrival, queue=queue, prefill=prefill, output=output)
        for row, (arrival, queue, prefill, output) in enumerate(lives)
    ]
    if not sequences:
        return
    slices = events(record(*sequences, replicas=2), tmp_path_factory.mktemp("t"), "X")
    for lane in lanes(slices):
        assert all(one["ts"] + one["dur"] <= other["ts"] + 1e-3 for one, other in pairwise(lane))
    total = sum((s.finished or 0) - s.arrival for s in sequences) / 1e6
    assert sum(event["dur"] for event in slices) == pytest.approx(total, abs=1)


def test_a_request_is_queue_prefill_and_decode_in_microseconds(tmp_path: Path) -> None:
    run = record(served(3, 1.0, queue=0.25, prefill=0.5, gap=0.1, output=11))
    found = [(e["name"], e["ts"], e["dur"]) for e in events(run, tmp_path, "X")]
    assert found == [
        ("queue", 1_000_000, 250_000),
        ("prefill", 1_250_000, 500_000),
        ("decode", 1_750_000, 1_000_000),
    ]
    arguments = events(run, tmp_path, "X")[0]["args"]
    assert (arguments["row"], arguments["id"], arguments["prompt_tokens"]) == (3, "request-3", 100)


def test_requests_that_do_not_meet_share_a_lane(tmp_path: Path) -> None:
    run = record(*(served(row, 10.0 * row) for row in range(5)))
    assert {event["tid"] for event in events(run, tmp_path, "X")} == {1}


def test_every_replica_is_a_named_process_with_counters(tmp_path: Path) -> None:
    run = record(*(served(row, 1.0 * row) for row in range(6)), replicas=2)
    names = [e["args"]["name"] for e in events(run, tmp_path, "M") if e["name"] == "process_name"]
    assert names == ["replica 0", "replica 1"]
    counters = events(run, tmp_path, "C")
    assert {event["name"] for event in counters} == {"KV slots", "requests", "batch"}
    assert all(sum(e["args"].values()) == 1_000 for e in counters if e["name"] == "KV slots")


def test_a_long_run_is_cut_at_the_stated_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kvsim.timeline, "MOST_REQUESTS", 3)
    run = record(*(served(row, 100.0 - row) for row in range(9)))
    assert write_timeline(run, tmp_path / "t.json") == 3
    document = json.loads((tmp_path / "t.json").read_text())
    assert document["otherData"] == {"run": "run", "requests": 9, "requests_shown": 3}
    shown = {e["args"]["row"] for e in document["traceEvents"] if e["ph"] == "X"}
    assert shown == {6, 7, 8}
