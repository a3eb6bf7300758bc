"""How predictions of measured runs compare with what was measured, and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import NamedTuple

from kvsim.errors import TraceError
from kvsim.simulation.host import Launches
from kvsim.validation.measurement import Measurement
from kvsim.validation.metrics import measured, predicted, values
from kvsim.validation.observed import Observed
from kvsim.validation.rows import (
    Forced,
    ForcedLoading,
    RecordedTimes,
    Step,
    StepError,
    equal_rows,
    replay_rows,
    steady,
    step_errors,
)

ROUNDS = 6
"""Corrections by which a calibration is found."""
SMALL = 0.01
"""Change of all step times, relative, by which a sensitivity is found."""
SENSITIVE = 0.05
"""Change of a metric for one percent of step time from which it cannot be predicted well."""
REPEAT = 0.02
"""Relative error that any metric is given at least: the engine itself repeats them within 1 to 4 %."""


class Comparison(NamedTuple):
    """One metric: as measured and as predicted, in its own unit, and how sure the prediction is."""

    measured: float
    predicted: float
    low: float
    high: float
    sensitivity: float | None
    """Relative change of the prediction when every iteration takes 1 % longer; None from nothing."""

    @property
    def rel_error(self) -> float | None:
        """Signed; None where nothing was measured."""
        return self.predicted / self.measured - 1 if self.measured else None

    @property
    def inside(self) -> bool:
        """Whether the measurement lies in the prediction's interval."""
        return self.low <= self.measured <= self.high

    @property
    def sensitive(self) -> bool:
        """Whether a small error of step times makes a large one of the metric."""
        return self.sensitivity is not None and abs(self.sensitivity) > SENSITIVE

    def as_dict(self) -> dict[str, float | bool | None]:
        """Ready for JSON."""
        judged = {"inside": self.inside, "sensitive": self.sensitive}
        return {**self._asdict(), "rel_error": self.rel_error, **judged}


class RunReport(NamedTuple):
    """How a prediction of one run compares."""

    run: Measurement
    seen: Observed
    """The prediction."""
    metrics: dict[str, Comparison]
    steps: Seq[Step] = ()
    """Iterations by their recorded and their modelled time."""
    equal_rows: int = 0
    """Iterations whose state is equal when the recorded times are given."""
    slowness: float = 1.0
    """How many times longer than predicted iterations were taken to be."""

    @property
    def name(self) -> str:
        """Of the recording."""
        return self.run.name

    @property
    def unmodelled(self) -> tuple[str, ...]:
        """What the engine was started with that is not modelled, a line each."""
        return self.run.setup.unmodelled

    @property
    def times(self) -> str:
        """The GPU, who says that it was this one, where step times come from, and how sure they are."""
        setup = self.run.setup
        return f"{setup.device}; {setup.cost().label} times, taken to be right within ±{setup.step_doubt:.1%}"

    @property
    def rows(self) -> int:
        """Recorded iterations."""
        return len(self.run.rows)

    @property
    def step_time(self) -> dict[str, StepError]:
        """The error of step times by kind of batch."""
        return step_errors(self.steps)

    @property
    def coverage(self) -> float:
        """Share of the metrics whose measurement lies in the prediction's interval."""
        inside = [metric.inside for metric in self.metrics.values()]
        return sum(inside) / len(inside)

    def as_dict(self) -> dict[str, object]:
        """Ready for JSON."""
        return {
            "name": self.name,
            "gpu": self.run.setup.gpu.name,
            "gpu_from": self.run.setup.device.source,
            "cost_model": self.run.setup.cost().label,
            "step_doubt": self.run.setup.step_doubt,
            "metrics": {name: metric.as_dict() for name, metric in self.metrics.items()},
            "coverage": self.coverage,
            "slowness": self.slowness,
            "rows": {"total": self.rows, "exact": self.equal_rows},
            "step_time": {
                kind: {**error._asdict(), "rel_error": error.rel_error}
                for kind, error in self.step_time.items()
            },
        }


def check_measured(run: Measurement, slowness: float = 1.0) -> RunReport:
    """Serve the run's requests on the same engine, with recorded times and with our own.

    ``slowness``: how many times longer than predicted every iteration is taken to be.
    """
    seen = run.setup.serve(run.requests, slowness=slowness)
    slower = run.setup.serve(run.requests, slowness=slowness * (1 + SMALL))
    metrics = compare(
        values(measured(run)),
        values(predicted(run, seen)),
        values(predicted(run, slower)),
        run.setup.step_doubt,
    )
    if not run.rows:
        return RunReport(run, seen, metrics, slowness=slowness)
    forced = replay_forced(run)
    steps = steady(forced, run.rows, run.setup.cost(), run.setup.host)
    equal = sum(equal_rows(run.rows, forced.rows))
    return RunReport(run, seen, metrics, steps, equal, slowness)


def calibrated(run: Measurement) -> float:
    """How many times longer iterations must take for the median time per token to be the measured."""
    slowness, wanted = 1.0, values(measured(run)).get("tpot_p50")
    if wanted is None:
        raise TraceError(f"{run.name}: no answer is longer than a token, so there is no TPOT")
    for _ in range(ROUNDS):
        found = values(predicted(run, run.setup.serve(run.requests, slowness=slowness)))
        slowness *= wanted / found["tpot_p50"]
    return slowness


def replay_forced(run: Measurement) -> Forced:
    """The run's requests on its engine, whose iterations take the recorded times."""
    host = run.setup.host._replace(launches=Launches(), boost=0.0)  # recorded times have it all
    times = RecordedTimes([row.end - host.to_client for row in run.rows])
    parts = run.setup.parts(times, leaps=False)
    if run.setup.offloading:
        launches, load = run.setup.host.launches, run.setup.load
        forced: Forced = ForcedLoading(
            0, *parts, times=times, host=host, load=load, launches=launches
        )
    else:
        forced = Forced(0, *parts, times=times, host=host)
    replay_rows(run.requests, forced)
    return forced


def compare(
    theirs: dict[str, float], ours: dict[str, float], slower: dict[str, float], doubt: float
) -> dict[str, Comparison]:
    """Every metric that both sides have, with an interval for step times off by ``doubt``."""
    found = {}
    for name, value in theirs.items():
        if name in ours:
            change = slower[name] / ours[name] - 1 if ours[name] else None
            width = ((change or 0.0) / SMALL * doubt) ** 2 + REPEAT**2
            half = abs(ours[name]) * width**0.5
            found[name] = Comparison(
                value, ours[name], ours[name] - half, ours[name] + half, change
            )
    return found
