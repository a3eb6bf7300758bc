"""``kvsim validate``: is kvsim right about an engine that its authors did not build?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvsim.validation import Comparison, RunReport, Verdict


def validate(
    recordings: Annotated[
        list[Path],
        typer.Argument(
            help="Decisions of vLLM's scheduler or SGLang's radix cache, measured runs of vLLM, or "
            "folders of LLMServingSim's benchmark."
        ),
    ],
    workload: Annotated[
        Path | None,
        typer.Option(
            help="What was submitted, if it was the same for all; by default "
            "workloads/WORKLOAD.jsonl[.gz] beside each."
        ),
    ] = None,
    leaps: Annotated[
        bool, typer.Option("--leaps/--no-leaps", help="Leap over equal iterations, or do not.")
    ] = True,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Make all iterations of a measured run longer by what fits it best."
        ),
    ] = False,
    gpu: Annotated[
        str | None,
        typer.Option(
            help="What measured runs were recorded on, by its name in the catalog; by default what they "
            "name, or else an H200."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="Write measured runs as an HTML page, and as JSON beside it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Replay what a real engine served and compare with what the engine did.

    Recorded decisions must be equal, request by request; of measured runs the errors of the
    prediction are shown, metric by metric.
    """
    from kvsim.validation import META, Verdict, summary
    from kvsim.validation import validate as check

    if report is not None:
        from kvsim.validation.report import check_report, write_report

        read = (*recordings, *(path / META for path in recordings))
        check_report(report, *read, *([workload] if workload else []))
    reports = [
        check(path, workload, leaps=leaps, calibrate=calibrate, gpu=gpu) for path in recordings
    ]
    runs = [one for one in reports if not isinstance(one, Verdict)]
    note_unmodelled(reports)
    if report is not None:
        write_report(runs, report)
    if as_json:
        typer.echo(json.dumps(summary(reports)))
    else:
        for path, one in zip(recordings, reports, strict=True):
            if isinstance(one, Verdict):
                show_verdict(path, one, named=len(reports) > 1)
        show_runs(runs)
    if any(isinstance(one, Verdict) and one.exact < one.requests for one in reports):
        raise typer.Exit(1)


def note_unmodelled(reports: Iterable[RunReport | Verdict]) -> None:
    """Say on stderr what the recorded engines were started with that kvsim has no model of."""
    for one in reports:
        for line in one.unmodelled:
            print(f"kvsim: warning: {line}", file=sys.stderr)


def show_verdict(path: Path, verdict: Verdict, *, named: bool) -> None:
    """Print how many decisions are equal, and the first that is not."""
    start = f"{path.name}: " if named else ""
    typer.echo(f"{start}{verdict.exact} of {verdict.requests} requests exact")
    if verdict.first_mismatch is not None:
        typer.echo(f"first difference: {verdict.first_mismatch.explanation}")


def show_runs(runs: list[RunReport]) -> None:
    """Print signed relative errors in percent, a column a run; of one, also what its errors hang on."""
    if not runs:
        return
    from rich.console import Console
    from rich.table import Table

    from kvsim.validation import worst

    table = Table("prediction / measured - 1", box=None, pad_edge=False)
    for run in runs:
        table.add_column(run.name, justify="right")
    if len(runs) == 1:
        table.add_column("if 1 % slower", justify="right")
    for metric in dict.fromkeys(name for run in runs for name in run.metrics):
        found = [run.metrics.get(metric) for run in runs]
        moves = [percent(one and one.sensitivity) for one in found] if len(runs) == 1 else []
        table.add_row(metric, *map(error_of, found), *moves)
    for kind in ("decode", "mixed", "prefill"):
        errors = [run.step_time.get(kind) for run in runs]
        if any(errors):
            table.add_row(f"step time, {kind}", *(percent(one and one.rel_error) for one in errors))
    if any(run.rows for run in runs):
        exact = (f"{run.equal_rows}/{run.rows}" for run in runs)
        table.add_row("iterations equal, given their times", *exact)
    if any(run.slowness != 1 for run in runs):
        table.add_row("all iterations longer by", *(percent(run.slowness - 1) for run in runs))
    table.add_row("measured inside the interval", *(f"{run.coverage:.0%}" for run in runs))
    Console(width=None if len(runs) < 3 else 60 + 32 * len(runs)).print(table)
    show_times(runs)
    median, most = worst(runs)
    typer.echo(f"median of absolute errors {median:.1%}, largest {most:.1%}")
    if any(metric.sensitive for run in runs for metric in run.metrics.values()):
        typer.echo("* moves by more than 5 % when every iteration takes 1 % longer")


def show_times(runs: list[RunReport]) -> None:
    """Print which GPUs runs are of and where their times come from, each once."""
    for times in dict.fromkeys(run.times for run in runs):
        names = [run.name for run in runs if run.times == times]
        typer.echo(f"{', '.join(names)}: {times}" if len(names) < len(runs) else times)


def error_of(metric: Comparison | None) -> str:
    """The error of a metric, marked if it cannot be predicted well; of none, what is predicted."""
    if metric is None or metric.measured == metric.predicted == 0:
        return "-"
    if metric.rel_error is None:
        return f"0 -> {metric.predicted:,g} "
    return percent(metric.rel_error) + ("*" if metric.sensitive else " ")


def percent(error: float | None) -> str:
    """A signed share."""
    return "-" if error is None else f"{error:+z.1%}"
