"""Small recorded runs for the tests of results: what a replica would tell the recorder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kvsim.analysis.summary import Deployment
from kvsim.core import BatchShape, Leap, Request, Sequence, Usage, picoseconds
from kvsim.runs import Recording, RunResult, new_manifest
from kvsim.simulation.recorder import Recorder
from kvsim.tables import Limits, RequestTable

if TYPE_CHECKING:
    from kvsim.tables import Floats, Ints

SLOTS = 1_000
DEPLOYMENT = Deployment(block_size=10, evictions=0, cost_model="analytic")


class Pool:
    """A KV pool whose state a test sets by hand: as much of an allocator as a recorder sees."""

    def __init__(self, held: int = 0, cached: int = 0) -> None:
        self.held_slots = held
        self.cached = cached
        self.evictions = self.saved_slots = 0

    def usage(self) -> Usage:
        used = self.held_slots * 9 // 10
        free = SLOTS - self.held_slots - self.cached
        return Usage(used, 0, self.held_slots - used, 0, self.cached, free)


class Kept:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.tables: list[RequestTable] = []
        self.seconds: list[float] = []
        self.counts: list[int] = []

    def requests(self, table: RequestTable) -> None:
        self.tables.append(table)

    def gaps(self, seconds: Floats, counts: Ints) -> None:
        self.seconds += seconds.tolist()
        self.counts += counts.tolist()

    @property
    def table(self) -> RequestTable:
        return RequestTable.concatenate(self.tables)


def served(
    row: int,
    arrival: float,
    *,
    queue: float = 0.0,
    prefill: float = 0.5,
    gap: float = 0.1,
    output: int = 11,
    cached: int = 0,
    preemptions: int = 0,
) -> Sequence:
    """A finished sequence with a prompt of 100 tokens, from its durations in seconds."""
    request = Request(row, arrival, 100, output, id=f"request-{row}" if row % 2 else None)
    sequence = Sequence(request, picoseconds(arrival))
    sequence.scheduled = picoseconds(arrival + queue)
    sequence.first_token = sequence.scheduled + picoseconds(prefill)
    sequence.finished = sequence.first_token + picoseconds(gap) * (output - 1)
    sequence.cached_tokens = cached
    sequence.preemptions = preemptions
    return sequence


def leap(
    recorder: Recorder,
    start: float,
    end: float,
    pool: Pool,
    *,
    replica: int = 0,
    steps: int = 1,
    shape: BatchShape | None = None,
    waiting: int = 0,
    running: int = 1,
    held: int | None = None,
    preemptions: int = 0,
    grown: int | None = None,
) -> None:
    """One leap between two instants in seconds; ``held`` slots before it, if not as many as after."""
    now = picoseconds(end)
    shape = shape or BatchShape(decodes=1, context_tokens=100)
    before = pool.held_slots if held is None else held
    times = (picoseconds(start), now)
    ran = Leap(replica, *times, steps, shape, waiting, running, before, preemptions, 0, grown)
    recorder.leap(ran, pool)  # type: ignore[arg-type]


def manifest() -> dict[str, object]:
    return new_manifest(
        scenario={"model": "llama-3-8b", "gpu": "h200", "allocator": {"name": "paged"}},
        scenario_hash="0" * 64,
        trace={"name": "trace.jsonl", "sha256": None},
        seed=0,
    )


def record(
    *sequences: Sequence,
    out: Path | None = None,
    overwrite: bool = False,
    replicas: int = 1,
    rejected: int = 0,
    slos: dict[str, float] | None = None,
    limits: Limits | None = None,
    name: str = "run",
) -> RunResult:
    """A run of the given sequences: a replica decodes from an arrival to an end, and idles else."""
    with Recording(out, overwrite=overwrite, keep=True, slos=slos) as recording:
        recorder = Recorder(replicas, SLOTS, recording, limits=limits)
        for replica in range(replicas):
            _serve(recorder, replica, [s for s in sequences if s.request.row % replicas == replica])
        for row in range(rejected):
            request = Request(len(sequences) + row, 0.0, 10**6, 1)
            recorder.rejected(request, 0, 0, "1000001 tokens exceed the pool")
        return recording.complete(manifest(), recorder.close(), DEPLOYMENT, name)


def _serve(recorder: Recorder, replica: int, sequences: list[Sequence]) -> None:
    pool = Pool()
    end = 0.0
    for sequence in sequences:
        start = max(end, sequence.arrival / 1e12)
        if start > end:
            recorder.idle(replica, pool)  # type: ignore[arg-type]
        end = max(start, (sequence.finished or 0) / 1e12)
        pool.held_slots = 500
        if end > start:
            leap(recorder, start, end, pool, replica=replica, steps=10)
        pool.held_slots, pool.cached = 0, 100
        recorder.finished(sequence, replica)
    recorder.idle(replica, pool)  # type: ignore[arg-type]
