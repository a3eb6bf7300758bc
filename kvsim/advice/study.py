"""Replays every technique in every situation of a trace, and puts together what helped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from kvsim.advice.answer import Advice, Row, Start
from kvsim.advice.combining import chosen, put_together, with_changes
from kvsim.advice.facts import facts
from kvsim.advice.judging import judged, trials
from kvsim.advice.placing import fitting, placed
from kvsim.advice.replay import Study, requests_of
from kvsim.advice.situation import Situation, situations
from kvsim.advice.techniques import Trial
from kvsim.catalog import load_gpu
from kvsim.compose import trace_options
from kvsim.errors import CapacityError, ConfigError
from kvsim.planning.archive import Archive, Memory, context
from kvsim.planning.pool import Lab
from kvsim.scenario import Scenario
from kvsim.workload import open_trace


def recommend(
    scenario: Scenario,
    trace: str | Path,
    *,
    most: int = 1000,
    clients: int = 64,
    edge: str = "l4",
    jobs: int = 1,
    archive: Archive | None = None,
    told: Callable[[str], None] = lambda what: None,
) -> Advice:
    """Advise a deployment by replaying parts of its trace.

    ``most`` requests are taken for each situation; "many" are ``clients`` at once; ``edge`` is the GPU
    of the last row. ``told`` hears what is being done. Raises what reading the trace raises, and
    CapacityError for a model that does not fit even with narrow weights.
    """
    path = str(trace)
    if path == "-":
        raise ConfigError("advice reads the trace several times, so it cannot be standard input")
    check(most, clients)
    fitting(scenario)
    opened = open_trace(path, trace_options(scenario))
    sha256 = opened.sha256()
    named = context(scenario, sha256)
    with Lab(jobs, memory=Memory(archive, named) if archive and named else None) as lab:
        study = Study(lab, path, most)
        wanted = situations(clients, load_gpu(edge).name)
        rows = answered(study, [begun(study, scenario, where) for where in wanted], told)
    runs = [row.base for row in rows if row.base is not None]
    labels = dict.fromkeys(str(run.summary["cost_model"]) for run in runs if run.summary)
    name = Path(opened.name).name
    return Advice(name, sha256, scenario, tuple(rows), tuple(labels), study.replays)


def check(most: int, clients: int) -> None:
    """Refuse what no study can be made of."""
    if not 1 <= most <= 1_000_000:
        raise ConfigError(f"--requests {most}: must be from 1 to 1,000,000")
    if not 2 <= clients <= 100_000:
        raise ConfigError(f"--clients {clients}: must be from 2 to 100,000")


def begun(study: Study, scenario: Scenario, where: Situation) -> Start | Row:
    """A situation with what it starts from; the row is complete where the trace says too little."""
    found = requests_of(study.trace, trace_options(scenario), where, study.most)
    known = facts(found.requests, found.clients) if found.requests else None
    if found.lack is not None or known is None:
        return Row(where, known, f"not enough evidence: {found.lack}")
    try:
        return Start(where, known, *fitting(placed(scenario, where)))
    except CapacityError as error:
        return Row(where, known, str(error))


def answered(study: Study, starts: list[Start | Row], told: Callable[[str], None]) -> list[Row]:
    """All rows: techniques one by one, then those that help together."""
    told("trying techniques")
    study.prepare(
        (each, start.situation)
        for start in starts
        if isinstance(start, Start)
        for each in wanted(start)
    )
    rows = [judged(study, start) if isinstance(start, Start) else start for start in starts]
    told("putting together what helps")
    study.prepare(
        (with_changes(row, picked), row.situation)
        for row in rows
        for picked in (chosen(row), chosen(row, at_a_price=True))
        if picked
    )
    return [put_together(study, row) for row in rows]


def wanted(start: Start) -> Iterator[Scenario]:
    """The deployment as it is, and without and with each technique."""
    yield start.base
    for trial in trials(start).values():
        if isinstance(trial, Trial):
            yield start.base.changed(**trial.without)
            yield start.base.changed(**trial.with_it)
