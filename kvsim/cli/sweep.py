"""``kvsim sweep``: many configurations, resumable, and ``kvsim sweep show``: what they gave."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from kvsim.cli.output import PIPE_WIDTH, Output
from kvsim.errors import ConfigError, KvsimError
from kvsim.files import require_folder
from kvsim.lists import listed

if TYPE_CHECKING:
    from rich.console import Console

    from kvsim.sweeping.configuration import Configuration
    from kvsim.sweeping.drive import Watch, Workers
    from kvsim.sweeping.ledger import Counts
    from kvsim.sweeping.results import Row

Backend = Literal["local", "ray"]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Format = Annotated[Output, typer.Option("--format", help="Format of the output.")]


class SweepGroup(TyperGroup):
    """``kvsim sweep SPEC`` runs it, as ``kvsim sweep run SPEC`` does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, with the command that is meant."""
        named = args[:1] in (["run"], ["show"])
        return super().parse_args(ctx, args if named else ["run", *args])


app = typer.Typer(cls=SweepGroup, add_completion=False)


@app.command()
def run(
    spec: Annotated[Path, typer.Argument(help="What stays and what varies: a TOML file.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the sweep; everything is kept there.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at once; without, one for each CPU.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and list the configurations, run nothing.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the sweep in --out, whatever ended it.")
    ] = False,
    continue_on_error: Annotated[
        bool, typer.Option("--continue-on-error", help="Run the others when one fails.")
    ] = False,
    keep_runs: Annotated[
        bool, typer.Option("--keep-runs", help="Also write the tables of each run, to OUT/runs.")
    ] = False,
    backend: Annotated[
        Backend, typer.Option(help="Where it runs: processes here, or a Ray cluster.")
    ] = "local",
    ray_address: Annotated[
        str | None, typer.Option(help="The Ray cluster, instead of RAY_ADDRESS.")
    ] = None,
    json: Json = False,
    output: Format = "table",
) -> None:
    """Run every combination that a file describes; kvsim sweep show DIR prints the results again."""
    from kvsim.sweeping.configuration import configurations
    from kvsim.sweeping.spec import read_spec

    described = read_spec(spec)
    if dry_run:
        list_matrix(configurations(described, str(spec)), described.size)
        return
    if out is None:
        raise ConfigError("--out DIR is missing: the folder that keeps the sweep")
    require_folder(out)
    matrix = configurations(described, str(spec))
    counts = run_matrix(
        matrix,
        out,
        workers(backend, jobs, ray_address),
        resume=resume,
        continue_on_error=continue_on_error,
        keep_runs=keep_runs,
    )
    show_rows(rows_of(out), [], "json" if json else output)
    if counts.failed:
        raise KvsimError(f"{counts.failed} of {counts.total} configurations failed")


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a sweep.")],
    best: Annotated[
        str | None,
        typer.Option(metavar="METRIC", help="Order by a metric: p99_ttft_ms, max:busy_fraction."),
    ] = None,
    pareto: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Only those that no other beats in these metrics."),
    ] = None,
    json: Json = False,
    output: Format = "table",
) -> None:
    """Print the results of a sweep: all, the best first, or the Pareto set."""
    from kvsim.sweeping import results

    rows = rows_of(folder)
    known = results.metric_names(rows)
    named = [] if pareto is None else listed("--pareto", pareto)
    chosen = [results.read_metric(name, known) for name in named]
    if len(chosen) == 1:
        raise ConfigError(f"--pareto {pareto}: must be at least two metrics, separated by a comma")
    if chosen:
        rows = results.pareto(rows, chosen)
    if best is not None:
        first = results.read_metric(best, known)
        rows, chosen = results.best(rows, first), [first, *chosen]
    show_rows(rows, [metric.name for metric in chosen], "json" if json else output)


def workers(backend: Backend, jobs: int | None, ray_address: str | None) -> Workers:
    """Who performs the runs."""
    if backend == "ray":
        from kvsim.sweeping.cluster import RayWorkers

        return RayWorkers(jobs, address=ray_address)
    if ray_address is not None:
        raise ConfigError("--ray-address means nothing without --backend ray")
    from kvsim.sweeping.local import LocalWorkers

    return LocalWorkers(jobs or os.cpu_count() or 1)


def run_matrix(
    matrix: Sequence[Configuration], out: Path, workers: Workers, **options: bool
) -> Counts:
    """Run the sweep, with its progress on stderr; when interrupted, say how to go on."""
    from kvsim.sweeping.drive import sweep

    try:
        # Ray's own messages, for one, would come between the results.
        with redirect_stdout(sys.stderr), progress() as watch:
            return sweep(matrix, out, workers, watch=watch, **options)
    except KeyboardInterrupt:
        print(f"kvsim: note: --resume goes on with the sweep in {out}", file=sys.stderr)
        raise


@contextmanager
def progress() -> Iterator[Watch]:
    """Draws how far the sweep is on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda counts: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("sweeping"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    # The runs of a sweep differ, so the speed is that of the whole sweep so far.
    with Progress(*columns, console=Console(stderr=True), speed_estimate_period=1e9) as bar:
        task = bar.add_task("", total=None, failed="")

        def watch(counts: Counts) -> None:
            failed = f"{counts.failed} failed" if counts.failed else ""
            settled = counts.done + counts.failed
            bar.update(task, total=counts.total, completed=settled, failed=failed)

        yield watch


def list_matrix(matrix: Sequence[Configuration], size: int) -> None:
    """Print what would run."""
    from kvsim.sweeping.table import print_matrix

    console = _console()
    print_matrix(matrix, console)
    same = f", {size - len(matrix)} more say the same" if size > len(matrix) else ""
    console.print(f"{len(matrix)} configurations{same}", highlight=False)


def rows_of(folder: Path) -> list[Row]:
    """The rows of a sweep."""
    from kvsim.sweeping.results import load_sweep

    return load_sweep(folder)


def show_rows(rows: Sequence[Row], metrics: Sequence[str], output: Output) -> None:
    """Print rows of a sweep."""
    from kvsim.sweeping import table

    if output == "table":
        table.print_rows(rows, metrics, _console())
    else:
        sys.stdout.write(table.json_of(rows) if output == "json" else table.csv_of(rows))


def _console() -> Console:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
