"""``kvsim validate``: is kvsim right about an engine that its authors did not build?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvsim.validation import RunReport, Verdict


def validate(
    recordings: Annotated[
        list[Path],
        typer.Argument(
            help="Decisions of vLLM's scheduler or SGLang's radix cache, or measured runs of vLLM."
        ),
    ],
    workload: Annotated[
        Path | None,
        typer.Option(
            help="What was submitted; by default workloads/WORKLOAD.jsonl[.gz] beside it."
        ),
    ] = None,
    leaps: Annotated[
        bool, typer.Option("--leaps/--no-leaps", help="Leap over equal iterations, or do not.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Replay what a real engine served and compare with what the engine did.

    Recorded decisions must be equal, request by request; of measured runs the errors of the
    prediction are shown, metric by metric.
    """
    from kvsim.validation import Verdict, summary
    from kvsim.validation import validate as check

    reports = [check(path, workload, leaps=leaps) for path in recordings]
    if as_json:
        typer.echo(json.dumps(summary(reports)))
    else:
        for path, report in zip(recordings, reports, strict=True):
            if isinstance(report, Verdict):
                show_verdict(path, report, named=len(reports) > 1)
        show_runs([report for report in reports if not isinstance(report, Verdict)])
    if any(isinstance(one, Verdict) and one.exact < one.requests for one in reports):
        raise typer.Exit(1)


def show_verdict(path: Path, verdict: Verdict, *, named: bool) -> None:
    """Print how many decisions are equal, and the first that is not."""
    start = f"{path.name}: " if named else ""
    typer.echo(f"{start}{verdict.exact} of {verdict.requests} requests exact")
    if verdict.first_mismatch is not None:
        typer.echo(f"first difference: {verdict.first_mismatch.explanation}")


def show_runs(runs: list[RunReport]) -> None:
    """Print signed relative errors in percent, a column a run."""
    if not runs:
        return
    from rich.console import Console
    from rich.table import Table

    from kvsim.validation import worst

    table = Table("prediction / measured - 1", box=None, pad_edge=False)
    for run in runs:
        table.add_column(run.name, justify="right")
    for metric in runs[0].metrics:
        table.add_row(metric, *(percent(run.metrics[metric].rel_error) for run in runs))
    for kind in ("decode", "mixed", "prefill"):
        errors = (run.step_time.get(kind) for run in runs)
        table.add_row(f"step time, {kind}", *(percent(one and one.rel_error) for one in errors))
    exact = (f"{run.equal_rows}/{run.rows}" for run in runs)
    table.add_row("iterations equal, given their times", *exact)
    Console(width=None if len(runs) < 3 else 60 + 32 * len(runs)).print(table)
    median, most = worst(runs)
    typer.echo(f"median of absolute errors {median:.1%}, largest {most:.1%}")


def percent(error: float | None) -> str:
    """A signed share."""
    return "-" if error is None else f"{error:+.1%}"
