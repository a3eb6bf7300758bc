"""One replay of a plan's trace, as a value that another process can run and a cache can name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import floor
from typing import NamedTuple

from kvsim import __version__
from kvsim.compose import deploy, described, trace_options
from kvsim.core import Request, Sequence, picoseconds
from kvsim.errors import ConfigError
from kvsim.planning.objective import QUANTILES, Objective
from kvsim.runs import Recording, RunResult, new_manifest
from kvsim.scenario import Scenario
from kvsim.simulation.cluster import simulate as replay
from kvsim.simulation.recorder import Recorder
from kvsim.slo import PER_REQUEST
from kvsim.workload import TraceOptions, open_trace

MOST_KEPT = 200_000
"""Requests of a trace up to which a process keeps it in memory."""


class Change(NamedTuple):
    """How a trial's world differs from the one that was asked about."""

    traffic: float = 1.0
    """Arrivals per second, as a multiple."""
    answers: float = 1.0
    """Length of answers, as a multiple."""
    slowness: float = 1.0
    """Duration of every iteration, as a multiple."""


AS_IT_IS = Change()


class Outcome(NamedTuple):
    """What a trial has shown; of a hopeless one only how bad it is at least."""

    met: bool
    attainment: float
    """Share of all requests that met every limit; of a hopeless trial at most that."""
    summary: Mapping[str, object] | None
    """None of a trial that was stopped because it was hopeless."""
    result: RunResult | None = None
    """With its tables, if they were asked for."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A scenario, a trace and an objective."""

    scenario: Scenario
    trace: str
    requests: int
    """How many the trace has."""
    objective: Objective
    change: Change = AS_IT_IS
    whole: bool = False
    """Run to the end even if the objective is out of reach."""
    keep: bool = False
    """Keep the tables."""

    @property
    def key(self) -> str:
        """Names everything that the outcome depends on, apart from the trace's content."""
        named = (
            __version__,
            self.scenario.hash,
            *self.objective,
            *self.change,
            self.whole,
            self.keep,
        )
        return hashlib.sha256(repr(named).encode()).hexdigest()

    def run(self) -> Outcome:
        """Replay.

        An engine that is slower by a factor under arrivals as they are is, with time measured in
        other units, the engine as it is under arrivals faster by that factor, held to limits that
        are tighter by it. So the slowness is exact for any cost model; times are put back after.
        """
        slow = self.change.slowness
        objective = self.objective.scaled(1 / slow)
        scenario = faster(self.scenario, self.change.traffic * slow).changed(slo=objective.limits)
        try:
            result = replayed(scenario, self, objective)
        except Hopeless as hopeless:
            return Outcome(False, 1 - hopeless.misses / self.requests, None)
        attainment = good_share(result.summary, self.requests)
        met = objective.met(result.summary, attainment)
        summary = slowed(result.summary, slow)
        return Outcome(met, attainment, summary, result if self.keep else None)

    def written(self, found: Outcome) -> str | None:
        """The outcome as JSON; None with tables, which are not for that."""
        if found.result is not None:
            return None
        return json.dumps([found.met, found.attainment, found.summary], allow_nan=False)

    def read(self, text: str) -> Outcome:
        """The outcome that was written."""
        return Outcome(*json.loads(text))


def good_share(summary: Mapping[str, object], requests: int) -> float:
    """Share of all requests that met every limit; without limits, that were served."""
    good, duration, completed = (
        summary[key] for key in ("request_goodput", "duration", "completed")
    )
    assert isinstance(completed, int)
    if isinstance(good, float | int) and isinstance(duration, float | int):
        return round(good * duration) / requests
    return completed / requests


class Hopeless(Exception):  # noqa: N818 - not an error
    """More requests have missed their limits than may."""

    @property
    def misses(self) -> int:
        """Requests that had missed when it was clear."""
        return int(self.args[0])


class Gate:
    """Counts the requests that miss some limits; ``allowed`` may."""

    def __init__(self, limits: Mapping[str, float], allowed: int) -> None:
        self._limits = [(name, picoseconds(limit)) for name, limit in limits.items()]
        self._allowed = allowed
        self._misses = 0

    def see(self, sequence: Sequence) -> None:
        """Count a finished request if it has missed a limit."""
        if any(latency(sequence, name) > limit for name, limit in self._limits):
            self.miss()

    def miss(self) -> None:
        """One more; Hopeless if it is one too many."""
        self._misses += 1
        if self._misses > self._allowed:
            raise Hopeless(self._misses)


class Watch:
    """An observer that passes everything on and stops a run whose objective is out of reach."""

    def __init__(self, recorder: Recorder, objective: Objective, requests: int) -> None:
        self._recorder = recorder
        self._gates = list(gates(objective, requests))
        self._refused = Gate({}, counted(objective.rejections_allowed, requests))
        self.leap = recorder.leap
        self.gap = recorder.gap
        self.idle = recorder.idle

    def finished(self, sequence: Sequence, replica: int) -> None:
        """Show the request to every gate."""
        self._recorder.finished(sequence, replica)
        for gate in self._gates:
            gate.see(sequence)

    def rejected(self, request: Request, replica: int, arrival: int, reason: str) -> None:
        """Refused requests have a gate of their own."""
        self._recorder.rejected(request, replica, arrival, reason)
        self._refused.miss()


def gates(objective: Objective, requests: int) -> Iterator[Gate]:
    """What makes a run hopeless, for certain, while it runs.

    A percentile is beyond its limit for certain when the order statistic below it is.
    """
    if objective.attainment is not None:
        yield Gate(objective.limits, counted(objective.misses_allowed, requests))
    for bound in objective.bounds:
        quantile = QUANTILES.get(bound.statistic)
        if quantile is not None and bound.metric in PER_REQUEST:
            allowed = requests - 1 - floor(quantile * (requests - 1))
            yield Gate({bound.metric: bound.limit}, allowed)


def counted(share: float, requests: int) -> int:
    """How many of the requests a share is at most; 29 % of 100 are 29."""
    return floor(share * requests + 1e-9)


def latency(sequence: Sequence, name: str) -> float:
    """A latency of a finished sequence, picoseconds; 0 where it does not exist."""
    first, finished, scheduled = sequence.first_token, sequence.finished, sequence.scheduled
    assert first is not None
    assert finished is not None
    assert scheduled is not None
    answer = sequence.request.output_tokens
    if name == "ttft":
        return first - sequence.arrival
    if name == "tpot":
        return (finished - first) / (answer - 1) if answer > 1 else 0
    if name == "queue_time":
        return scheduled - sequence.arrival
    return (finished - sequence.arrival) / (answer if name == "normalized_latency" else 1)


def replayed(scenario: Scenario, trial: Trial, objective: Objective) -> RunResult:
    """The run of a scenario on the trial's trace."""
    deployed = deploy(scenario)
    replicas = deployed.replicas
    options = trace_options(scenario)
    requests = stretched(arriving(trial.trace, options, trial.requests), trial.change.answers)
    with Recording(None, keep=trial.keep, slos=objective.limits) as recording:
        slots = replicas[0].allocator.total_slots
        recorder = Recorder(len(replicas), slots, recording, limits=deployed.limits)
        observer = recorder if trial.whole else Watch(recorder, objective, trial.requests)
        replay(requests, replicas, deployed.router, observer)
        manifest = new_manifest(
            scenario=deployed.scenario.model_dump(mode="json"),
            scenario_hash=deployed.scenario.hash,
            trace={"name": trial.trace, "sha256": None},
            seed=scenario.seed,
        )
        return recording.complete(manifest, recorder.close(), described(deployed))


def arriving(path: str, options: TraceOptions, requests: int) -> Iterable[Request]:
    """The trace's requests, from memory if there are not too many."""
    if requests > MOST_KEPT:
        return open_trace(path, options)
    return kept(path, options)


@cache
def kept(path: str, options: TraceOptions) -> tuple[Request, ...]:
    """The trace's requests, read once by each process."""
    return tuple(open_trace(path, options))


def stretched(requests: Iterable[Request], factor: float) -> Iterator[Request]:
    """The same requests with longer (or shorter) answers."""
    if factor == 1:
        return iter(requests)
    return (
        request._replace(output_tokens=max(1, round(request.output_tokens * factor)))
        for request in requests
    )


def faster(scenario: Scenario, factor: float) -> Scenario:
    """The scenario with arrivals and think times divided by ``factor``."""
    if factor == 1:
        return scenario
    workload = scenario.workload.model_dump()
    if workload["request_rate"] == "inf":
        raise ConfigError("a plan needs arrivals in time: --request-rate inf has none")
    name = "speedup" if workload["request_rate"] is None else "request_rate"
    workload[name] = (workload[name] or 1.0) * factor
    return scenario.changed(workload=workload)


def slowed(summary: Mapping[str, object], factor: float) -> Mapping[str, object]:
    """A summary with its times put back into seconds of the world that was asked about."""
    if factor == 1:
        return summary
    return {key: _slowed(key, value, factor) for key, value in summary.items()}


def _slowed(key: str, value: object, factor: float) -> object:
    if not isinstance(value, float | int):
        return value
    if key.endswith("_ms") or key == "duration":
        return value * factor
    return value / factor if key.endswith(("_throughput", "_goodput")) else value
