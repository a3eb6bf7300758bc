"""``kvsim plan``: how many of which GPUs serve a trace within its objectives, and what it costs."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvsim.cli.common import require_simulated, with_scenario
from kvsim.cli.groups import grouped
from kvsim.cli.output import PIPE_WIDTH, Output, note_absent
from kvsim.cli.plan_flags import Money, Wanted, asked
from kvsim.cli.remember import Remember
from kvsim.errors import ConfigError, SloError
from kvsim.lists import listed
from kvsim.reporting.places import Places
from kvsim.scenario import Scenario

if TYPE_CHECKING:
    from kvsim.planning import Plan, Question
    from kvsim.planning.archive import Archive


@with_scenario
@grouped
def plan(
    trace: Annotated[str, typer.Argument(help="A request trace.")],
    wanted: Wanted,
    money: Money,
    remember: Remember,
    gpu: Annotated[str | None, asked(help="GPU types to choose from, by commas.")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; without, one for each CPU.")
    ] = None,
    report: Annotated[
        list[Path] | None,
        asked(help="Write a report: .html, .md, .pdf, .csv or .json. Repeatable."),
    ] = None,
    out: Annotated[
        Path | None, asked(help="Write the plan to this new folder, for kvsim report.")
    ] = None,
    *,
    scenario: Scenario,
    output: Output,
) -> None:
    """Find the cheapest fleet of each GPU type that serves a trace within its objectives."""
    if output == "csv":
        raise ConfigError("a plan is printed as table or json; --report writes files")
    require_simulated(scenario, "kvsim plan")
    places = Places(tuple(report or ()), out)
    places.check(trace, *([money.price_file] if money.price_file else []))
    gpus = (scenario.gpu,) if gpu is None else tuple(listed("--gpu", gpu))
    question = asking(scenario, trace, gpus, wanted, money)
    with remember.opened() as replays:
        answer(question, jobs or os.cpu_count() or 1, places, output, replays)


def asking(
    scenario: Scenario, trace: str, gpus: tuple[str, ...], wanted: Wanted, money: Money
) -> Question:
    """The question that the flags ask."""
    from kvsim.planning import Question
    from kvsim.planning.objective import read_objective

    return Question(
        scenario=scenario,
        trace=trace,
        gpus=gpus,
        objective=read_objective(wanted.targets(scenario), wanted.attainment),
        as_of=money.day,
        tensor_parallel_sizes=wanted.sizes(scenario),
        token_budgets=wanted.budgets,
        max_gpus=wanted.max_gpus,
        headroom=wanted.headroom,
        calibration=wanted.calibration_error,
        preference=money.preference,
        electricity=money.electricity,
        owned=money.owned,
        explore=not wanted.quick,
    )


def answer(
    question: Question, jobs: int, places: Places, output: Output, replays: Archive | None
) -> None:
    """Plan, write reports, print; SloError if nothing meets the objective."""
    from kvsim.planning import plan as planned
    from kvsim.runs import to_json

    progress = Progress()
    try:
        found = planned(question, jobs=jobs, told=progress, keep=places.any, archive=replays)
    finally:
        progress.clear()
    note_absent(found.traffic.absent)
    command = shlex.join(["kvsim", *sys.argv[1:], *on_the_day(question)])
    places.write(found, command)
    if output == "json":
        from kvsim.planning.document import document

        sys.stdout.write(to_json(document(found, command)).decode())
    else:
        show(found)
    if not any(candidate.outcome.met for candidate in found.candidates):
        reasons = [f"{r.market.gpu.name}: {r.reason}" for r in found.refused]
        reasons += [
            f"{c.market.gpu.name}: {c.outcome.attainment:.1%} within all limits"
            for c in found.candidates
        ]
        wanted = ", ".join(question.objective.texts)
        raise SloError(f"no fleet meets {wanted} ({'; '.join(reasons)})")


def on_the_day(question: Question) -> list[str]:
    """The flag without which the command would take the prices of another day."""
    said = any(argument.partition("=")[0] == "--as-of" for argument in sys.argv[1:])
    return [] if said else ["--as-of", question.as_of.isoformat()]


def show(found: Plan) -> None:
    """The table."""
    from rich.console import Console

    from kvsim.planning.show import print_plan

    print_plan(found, Console(width=None if sys.stdout.isatty() else PIPE_WIDTH))


class Progress:
    """Counts replays on a terminal's standard error."""

    def __call__(self, what: str, count: int) -> None:
        """Show what is being done."""
        if sys.stderr.isatty():
            print(f"\r\033[K{what}: replay {count}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Take the line away again."""
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
