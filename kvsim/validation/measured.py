"""Measured runs of a real engine on a real GPU, and what kvsim predicts for them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kvsim.catalog import load_gpu, load_model
from kvsim.catalog.engines import Engine, load_engine
from kvsim.core import PICOSECONDS, Request, Sequence
from kvsim.costs.served import Served
from kvsim.errors import TraceError
from kvsim.layout import KVLayout
from kvsim.memory.paged import Paged
from kvsim.protocols import Allocator, CostModel, Leap
from kvsim.routing import RoundRobin
from kvsim.scheduling.chunked import Chunked
from kvsim.simulation.cluster import simulate
from kvsim.simulation.pipelined import HostCosts, Pipelined
from kvsim.simulation.silent import Silent
from kvsim.validation.reference import beside, number, rows
from kvsim.validation.rows import (
    Forced,
    RecordedTimes,
    Row,
    StepError,
    equal_rows,
    replay_rows,
    step_errors,
)
from kvsim.workload import open_trace

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[Any, np.dtype[np.float64]]

SHAPES = {"llama3-8b": "llama-3-8b", "qwen25-32b": "qwen2.5-32b", "dsv2lite": "deepseek-v2-lite"}
"""Folder names of recorded models, and what they have the shape of."""


class Comparison(NamedTuple):
    """One metric: as measured and as predicted, in its own unit."""

    measured: float
    predicted: float

    @property
    def rel_error(self) -> float | None:
        """Signed; None where nothing was measured."""
        return self.predicted / self.measured - 1 if self.measured else None

    def as_dict(self) -> dict[str, float | None]:
        """Ready for JSON."""
        return {**self._asdict(), "rel_error": self.rel_error}


class RunReport(NamedTuple):
    """How a prediction of one run compares."""

    name: str
    metrics: dict[str, Comparison]
    rows: int
    equal_rows: int
    """Iterations whose state is equal when the recorded times are given."""
    step_time: dict[str, StepError]

    def as_dict(self) -> dict[str, object]:
        """Ready for JSON."""
        return {
            "name": self.name,
            "metrics": {name: metric.as_dict() for name, metric in self.metrics.items()},
            "rows": {"total": self.rows, "exact": self.equal_rows},
            "step_time": {
                kind: {**error._asdict(), "rel_error": error.rel_error}
                for kind, error in self.step_time.items()
            },
        }


class Outcome(NamedTuple):
    """What a client saw of one request, seconds since its call; and its counters."""

    submit: float
    ttft: float
    e2e: float
    output: int
    cached: int


class Observed(Silent):
    """Notes what clients and the engine's log would show."""

    def __init__(self) -> None:
        self.requests: dict[int, tuple[float, float, int]] = {}
        self.gaps: list[tuple[float, int]] = []
        self.leaps: list[tuple[float, float, int, float]] = []
        """Start and end (s), iterations, KV usage."""

    def leap(self, leap: Leap, allocator: Allocator) -> None:
        """Note the iterations."""
        usage = (leap.held + allocator.held_slots) / 2 / allocator.total_slots
        start, end = leap.start / PICOSECONDS, leap.end / PICOSECONDS
        self.leaps.append((start, end, leap.steps, usage))
        if leap.shape.decodes:
            self.gaps.append(((end - start) / leap.steps, leap.shape.decodes * leap.steps))

    def gap(self, picoseconds: int) -> None:
        """Note a gap that a preemption tore."""
        self.gaps.append((picoseconds / PICOSECONDS, 1))

    def finished(self, sequence: Sequence, replica: int) -> None:
        """Note the times of a request, absolute."""
        assert sequence.first_token is not None
        assert sequence.finished is not None
        times = (sequence.first_token / PICOSECONDS, sequence.finished / PICOSECONDS)
        self.requests[sequence.request.row] = (*times, sequence.cached_tokens)

    def rejected(self, request: Request, replica: int, arrival: int, reason: str) -> None:
        """A request that the engine served cannot be refused."""
        raise TraceError(f"request {request.row}: {reason}, yet the engine has served it")


def check_measured(recording: Mapping[str, Any], path: Path, workload: Path | None) -> RunReport:
    """Serve the run's requests on the same engine, once with recorded times, once with our own."""
    run = Run(recording, path, workload)
    recorded = run.rows
    times = RecordedTimes([row.end - run.engine.host["to_client"] for row in recorded])
    forced = Forced(0, *run.parts(times, leaps=False), times=times, host=run.host)
    replay_rows(run.requests, forced)
    errors = step_errors(forced.shapes, len(recorded), run.cost)
    observed = Observed()
    simulate(
        run.requests,
        [Pipelined(0, *run.parts(run.cost, leaps=True), host=run.host)],
        RoundRobin(),
        observed,
    )
    return RunReport(
        path.name.split(".json")[0],
        run.compare(observed, forced.scheduler.preemptions),
        len(recorded),
        equal_rows(recorded, forced.rows),
        errors,
    )


class Run:
    """A recording, taken apart: the engine, the requests and what was measured."""

    def __init__(self, recording: Mapping[str, Any], path: Path, workload: Path | None) -> None:
        self._path = path
        self._info = recording.get("info")
        self._iterations = rows(path, recording, "iterations")
        self.measured = {
            number(path, f"requests[{i}]", row, "i"): self._outcome(i, row)
            for i, row in enumerate(rows(path, recording, "requests"))
        }
        self._gaps = [row.get("token_times", []) for row in recording["requests"]]
        self.engine: Engine = load_engine("vllm-0.23")
        self.host = HostCosts(**self.engine.host)
        self.cost: CostModel = self._cost_model()
        submitted = list(open_trace(beside(path, workload)))
        self.requests = sorted(map(self._submitted, submitted), key=lambda r: (r.arrival, r.row))

    def _outcome(self, index: int, row: Mapping[str, Any]) -> Outcome:
        try:
            times = (float(row["submit"]), float(row["ttft"]), float(row["e2e"]))
            return Outcome(*times, int(row["output"]), int(row["cached"]))
        except (KeyError, TypeError, ValueError) as error:
            where = f"{self._path}: requests[{index}]"
            raise TraceError(f"{where} lacks a number: {error}; accepted: a measured run") from None

    def _submitted(self, request: Request) -> Request:
        """The request at the time of its real call; a little late where that is not recorded."""
        outcome = self.measured.get(request.row)
        at = outcome.submit if outcome else (request.arrival or 0.0) + 0.001
        return request._replace(arrival=at)

    def _number(self, field: str) -> int:
        return number(self._path, "info", self._info, field)

    def _cost_model(self) -> CostModel:
        arguments = (self._info or {}).get("engine_args", {})
        folder = str(arguments.get("model", "")).rstrip("/").rpartition("/")[2]
        layout = KVLayout(
            load_model(SHAPES.get(folder, folder)),
            arguments.get("kv_cache_dtype", "auto"),
            arguments.get("tensor_parallel_size", 1),
        )
        random = arguments.get("load_format") == "dummy"
        in_use = 0.1 if random else 1.0  # random weights route all tokens to the same experts
        options = {**self.engine.step, "experts_in_use": in_use}
        return Served(layout, load_gpu("h200"), **options)  # type: ignore[arg-type]

    def parts(self, cost: CostModel, *, leaps: bool) -> tuple[Chunked, Paged, CostModel]:
        """A scheduler, its memory and a time model, as the run had them."""
        pool = Paged(
            self._number("num_gpu_blocks"),
            block_size=self._number("block_size"),
            free_order=self.engine.free_order,
        )
        scheduler = Chunked(
            pool,
            max_num_seqs=self._number("max_num_seqs"),
            max_num_batched_tokens=self._number("max_num_batched_tokens"),
            leaps=leaps,
        )
        return scheduler, pool, cost

    @property
    def rows(self) -> list[Row]:
        """The recorded iterations that did something."""
        return [
            Row(row[0], row[1], row[2], row[3], row[6] if len(row) > 6 else 0)
            for row in self._iterations
            if len(row) > 6 or row[1] or row[2]
        ]

    def compare(self, observed: Observed, preemptions: int) -> dict[str, Comparison]:
        """Every metric over the requests that have a record."""
        import numpy as np

        scored = sorted(self.measured.keys() & observed.requests.keys())
        theirs = [self.measured[row] for row in scored]
        ours = [self._predicted(row, observed) for row in scored]
        table = latencies(theirs, ours)
        recorded_gaps = np.concatenate([np.diff(times) for times in self._gaps])
        gaps, counts = np.array(observed.gaps).T
        for percent in (50, 99):
            table[f"itl_p{percent}"] = Comparison(
                float(np.percentile(recorded_gaps, percent)), weighted(gaps, counts, percent)
            )
        table |= self._totals(observed, theirs, ours)
        preempted = sum(row[9] for row in self._iterations if len(row) > 9)
        table["preemptions"] = Comparison(preempted, preemptions)
        return table

    def _predicted(self, row: int, observed: Observed) -> Outcome:
        first, last, cached = observed.requests[row]
        submit, output = self.measured[row].submit, self.measured[row].output
        return Outcome(submit, first - submit, last - submit, output, cached)

    def _totals(
        self, observed: Observed, theirs: list[Outcome], ours: list[Outcome]
    ) -> dict[str, Comparison]:
        """What concerns the run as a whole; a run that was stopped early is compared up to there."""
        recorded = self.rows
        end = recorded[-1].end if len(theirs) < len(self.requests) else float("inf")
        leaps = [leap for leap in observed.leaps if leap[1] <= end]
        spans = [(after.end - before.end, after.kv_usage) for before, after in pairs(recorded)]
        durations = [
            max(o.submit + o.e2e for o in side) - theirs[0].submit for side in (theirs, ours)
        ]
        tokens = sum(outcome.output for outcome in theirs)
        return {
            "output_throughput": Comparison(*(tokens / duration for duration in durations)),
            "duration": Comparison(*durations),
            "peak_kv_usage": Comparison(
                max(row.kv_usage for row in recorded), max(leap[3] for leap in leaps)
            ),
            "mean_kv_usage": Comparison(
                mean(spans), mean([(leap[1] - leap[0], leap[3]) for leap in leaps])
            ),
            "cached_tokens": Comparison(sum(o.cached for o in theirs), sum(o.cached for o in ours)),
            "iterations": Comparison(len(recorded), sum(leap[2] for leap in leaps)),
        }


def pairs(recorded: list[Row]) -> list[tuple[Row, Row]]:
    """Iterations that follow one another while the engine is busy."""
    return [pair for pair in pairwise(recorded) if pair[0].running]


def mean(weighed: list[tuple[float, float]]) -> float:
    """Mean of values, each weighed by its seconds."""
    return sum(span * value for span, value in weighed) / sum(span for span, _ in weighed)


def latencies(theirs: list[Outcome], ours: list[Outcome]) -> dict[str, Comparison]:
    """TTFT, TPOT and E2E, seconds: mean and percentiles."""
    import numpy as np

    table = {}
    for name, value in (("ttft", ttft), ("tpot", tpot), ("e2e", e2e)):
        sides = [np.array([value(o) for o in side if o.output > 1]) for side in (theirs, ours)]
        table[f"{name}_mean"] = Comparison(*(float(side.mean()) for side in sides))
        for percent in (50, 90, 99):
            found = [float(np.percentile(side, percent)) for side in sides]
            table[f"{name}_p{percent}"] = Comparison(*found)
    return table


def ttft(outcome: Outcome) -> float:
    """Time to first token, seconds."""
    return outcome.ttft


def tpot(outcome: Outcome) -> float:
    """Time per output token after the first, seconds."""
    return (outcome.e2e - outcome.ttft) / (outcome.output - 1)


def e2e(outcome: Outcome) -> float:
    """Time to the last token, seconds."""
    return outcome.e2e


def weighted(values: Floats, counts: Floats, percent: float) -> float:
    """Percentile of values that occur several times each."""
    import numpy as np

    order = np.argsort(values)
    share = np.cumsum(counts[order]) / counts.sum()
    return float(values[order][np.searchsorted(share, percent / 100)])
