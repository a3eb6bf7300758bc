"""``kvsim compare``: allocators and schedulers on one trace, or runs that exist already."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kvsim.cli.common import note_ignored, with_scenario
from kvsim.cli.output import Output, note_absent, show_results
from kvsim.errors import ConfigError, KvsimError
from kvsim.lists import listed
from kvsim.scenario import Scenario

if TYPE_CHECKING:
    from kvsim.runs import RunResult

ALLOCATORS = "contiguous,buddy,paged,radix"


class Task(NamedTuple):
    """One column of the comparison."""

    name: str
    scenario: Scenario
    trace: str
    out: Path | None
    overwrite: bool = False


@with_scenario
def compare(
    inputs: Annotated[
        list[str], typer.Argument(metavar="TRACE | RUN RUN...", help="One trace, or finished runs.")
    ],
    allocators: Annotated[
        str | None, typer.Option(help="Allocators to compare, separated by commas.")
    ] = None,
    schedulers: Annotated[
        str | None, typer.Option(help="Schedulers to compare, separated by commas.")
    ] = None,
    isolations: Annotated[
        str | None,
        typer.Option(help="Isolations to compare, by commas: global,tenant,user,session."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; without, one for each CPU.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write each run to a folder of its name in this one.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the runs that --out holds.")
    ] = False,
    *,
    scenario: Scenario,
    output: Output,
) -> None:
    """Compare allocators and schedulers on a trace, or finished runs, in one table."""
    varied = Varied(allocators, schedulers, isolations)
    if len(inputs) > 1 or Path(inputs[0], "manifest.json").is_file():
        from kvsim.runs import load_run

        if out is not None:
            raise ConfigError(
                f"--out {out}: finished runs are not written again; accepted: one trace"
            )
        refuse_settings(scenario, varied, {"jobs": jobs, "overwrite": overwrite or None})
        results = [load_run(Path(run)) for run in inputs]
    else:
        tasks = combinations(scenario, inputs[0], varied, out)
        tasks = [task._replace(overwrite=overwrite) for task in tasks]
        require_places(tasks)
        results = run_side_by_side(tasks, jobs or os.cpu_count() or 1)
        if isolations is not None:
            results = with_isolation_costs(results)
        for task in tasks:
            note_ignored(task.scenario)
        note_absent(dict.fromkeys(name for result in results for name in result.absent))
    show_results(results, output)


def require_places(tasks: Sequence[Task]) -> None:
    """Refuse, before anything is simulated, folders that the runs cannot be written to."""
    from kvsim.runs import require_place

    for task in tasks:
        if task.out is not None:
            require_place(task.out, overwrite=task.overwrite)


def refuse_settings(scenario: Scenario, varied: Varied, more: Mapping[str, object]) -> None:
    """ConfigError for settings of a replay, where runs are finished and would not heed them."""
    named = {**varied._asdict(), **more}
    given = [name for name, value in named.items() if value is not None]
    given += sorted((scenario.model_fields_set - {"workload"}) | scenario.workload.model_fields_set)
    if given:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        raise ConfigError(
            f"{flags}: finished runs are compared as they are; accepted: with one trace"
        )


class Varied(NamedTuple):
    """What to compare, each a list by commas; None: as in the scenario."""

    allocators: str | None = None
    schedulers: str | None = None
    isolations: str | None = None


def combinations(scenario: Scenario, trace: str, varied: Varied, out: Path | None) -> list[Task]:
    """Every allocator with every scheduler and isolation; what is not named stays as it is."""
    if trace == "-":
        raise ConfigError("compare reads the trace several times, so it cannot be standard input")
    if varied == Varied():
        varied = Varied(ALLOCATORS)
    axes = (
        _names("--allocators", varied.allocators, scenario.allocator.name),
        _names("--schedulers", varied.schedulers, scenario.scheduler.name),
        _names("--isolations", varied.isolations, scenario.isolation),
    )
    tasks = []
    for chosen in product(*axes):
        named = [name for name, axis in zip(chosen, axes, strict=True) if len(axis) > 1]
        for quotas in _bounds(scenario, chosen[2], varied):
            name = "-".join([*(named or chosen[:1]), *(["quotas"] if quotas else [])])
            changed = _with(scenario, *chosen).changed(quotas=quotas)
            tasks.append(Task(name, changed, trace, _folder(out, name)))
    return tasks


def _bounds(scenario: Scenario, isolation: str, varied: Varied) -> list[dict[str, float] | None]:
    """Quotas to compare: where isolations are compared, none and the scenario's, which needs tenants."""
    if scenario.quotas is None or varied.isolations is None:
        return [scenario.quotas]
    return [None] if isolation == "global" else [None, scenario.quotas]


def _names(flag: str, text: str | None, given: str) -> list[str]:
    return [given] if text is None else listed(flag, text)


def _with(scenario: Scenario, allocator: str, scheduler: str, isolation: str) -> Scenario:
    """The scenario with another plug-in; options stay with the one that they were given for."""
    changes: dict[str, object] = {"isolation": isolation} if isolation != scenario.isolation else {}
    if allocator != scenario.allocator.name:
        changes["allocator"] = allocator
    if scheduler != scenario.scheduler.name:
        changes["scheduler"] = scheduler
    return scenario.changed(**changes)


def _folder(out: Path | None, name: str) -> Path | None:
    from kvsim.runs import run_path

    return None if out is None else run_path(out, name.replace(":", "."))


def with_isolation_costs(results: Sequence[RunResult]) -> list[RunResult]:
    """The runs; each that keeps anybody apart says what that costs against sharing with all.

    It is compared with the first run of the same allocator and scheduler that is ``global``.
    """
    from kvsim.cli.isolation import cost_of

    return [cost_of(result, results) for result in results]


def run_side_by_side(tasks: Sequence[Task], jobs: int) -> list[RunResult]:
    """Run all tasks, in processes; what they give does not depend on how many."""
    from kvsim.simulation.parallel import run_all

    return run_all(run_one, tasks, jobs)


def run_one(task: Task) -> RunResult:
    """Run one task; a mistake says whose it is."""
    from kvsim.compose import simulate

    try:
        return simulate(
            task.scenario,
            task.trace,
            out=task.out,
            overwrite=task.overwrite,
            keep=False,
            name=task.name,
        )
    except KvsimError as error:
        raise type(error)(f"{task.name}: {error}") from None
