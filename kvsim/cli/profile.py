"""``kvsim profile``: what was measured on a GPU, and how well it predicts what was not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.cli.output import PIPE_WIDTH
from kvsim.files import require_folder

if TYPE_CHECKING:
    from rich.console import Console

    from kvsim.costs.operators import Profile

app = typer.Typer(no_args_is_help=True, add_completion=False)

BARS = "▁▂▃▄▅▆▇█"
GpuName = Annotated[str, typer.Option(help="GPU of a shipped profile.")]
Source = Annotated[str | None, typer.Option("--profile", help="Profile by name, or a file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command()
def show(
    gpu: GpuName = "h200",
    profile: Source = None,
    operator: Annotated[
        str | None, typer.Option(help="Print the times of this operator, point by point.")
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(help="Folder to draw operators.png and rates.png into.")
    ] = None,
) -> None:
    """Print what a profile holds and where it comes from."""
    if plots is not None:
        require_folder(plots, ".png")
    found, console = chosen(gpu, profile), wide_console()
    if operator is None:
        show_machine(found, console)
        show_tables(found, console)
    else:
        show_points(found, operator, console)
    if plots is not None:
        from kvsim.profile_plots import write_profile_plots

        for path in write_profile_plots(found, plots):
            console.print(f"wrote {path}")


@app.command()
def check(gpu: GpuName = "h200", profile: Source = None, as_json: Json = False) -> None:
    """Predict the held-out shapes; fails above a median error of 3 % or a 95th percentile of 10 %."""
    from kvsim.costs.accuracy import accuracies

    found = accuracies(chosen(gpu, profile))
    overall = found[-1]
    if as_json:
        rows = [dict(row._asdict(), worst=row.worst._asdict()) for row in found]
        typer.echo(json.dumps({"passes": overall.passes, "operators": rows}))
    else:
        from rich.table import Table

        table = Table("operator", box=None, pad_edge=False)
        for heading in ("shapes", "median", "p95", "bias", "worst"):
            table.add_column(heading, justify="right")
        table.add_column("at")
        for row in found:
            errors = (f"{row.median:.1%}", f"{row.p95:.1%}", f"{row.bias:+z.1%}")
            place = ", ".join(map(str, (*row.worst.place, row.worst.x)))
            table.add_row(row.operator, str(row.shapes), *errors, f"{row.worst.error:+z.1%}", place)
        console = wide_console()
        console.print(table)
        console.print(
            f"\n{'passes' if overall.passes else 'fails'}: all shapes together, median 3 %, p95 10 % at most"
        )
    if not overall.passes:
        raise typer.Exit(1)


def chosen(gpu: str, profile: str | None) -> Profile:
    """The profile that was asked for."""
    from kvsim.catalog import load_gpu
    from kvsim.costs.operators import load_profile, shipped
    from kvsim.errors import ConfigError

    if profile is not None:
        return load_profile(profile)
    name = load_gpu(gpu).name
    for shipped_name in shipped():
        found = load_profile(shipped_name)
        if found.gpu == name:
            return found
    raise ConfigError(f"no profile of {name} is shipped (there are: {', '.join(shipped())})")


def wide_console() -> Console:
    """A console that does not fold tables when it is no terminal."""
    import sys

    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def show_machine(profile: Profile, console: Console) -> None:
    """Print on what and with what each run of the profile measured."""
    unfinished = "" if profile.complete else ", not complete"
    console.print(f"[bold]{profile.gpu}[/], {profile.source}{unfinished}")
    for run in profile.runs:
        clocks = [clock for clock in run["clocks_mhz"].values() if clock]
        seen = f", {min(clocks)} to {max(clocks)} MHz" if clocks else ""
        console.print(
            f"  {run['date']}: {run.get('devices', 1)} x {run['device']}, driver "
            f"{run.get('driver', '-')}, torch {run['torch']}, triton {run['triton']}, CUDA "
            f"{run.get('cuda') or '-'}{seen}, {run.get('seconds') or 0:.0f} s{options_of(run)}"
        )


def options_of(run: Mapping[str, Any]) -> str:
    """What a run was asked to measure, where it says so."""
    options = run.get("options")
    if options is None:
        return ""
    parts = [f"{options['scope']} scope", *(["resumed"] if options["resume"] else [])]
    return ", " + ", ".join([*parts, *options["only"]])


def show_tables(profile: Profile, console: Console) -> None:
    """Print every operator with its axes, points and spread."""
    from rich.table import Table

    from kvsim.costs.operators import quantile

    table = Table("operator", "axes", box=None, pad_edge=False)
    for heading in ("points", "from us", "to us", "spread p90"):
        table.add_column(heading, justify="right")
    for name in profile.operators:
        times, spreads = [], []
        for one in profile.series(name):
            times += one["median"]
            spreads += [
                (high - low) / (2 * middle)
                for low, middle, high in zip(one["p10"], one["median"], one["p90"], strict=True)
            ]
        numbers = (f"{min(times):,.1f}", f"{max(times):,.0f}", f"{quantile(spreads, 0.9):.1%}")
        table.add_row(name, ", ".join(profile.axes(name)), f"{len(times):,}", *numbers)
    console.print(table)


def show_points(profile: Profile, operator: str, console: Console) -> None:
    """Print the series of an operator: a plot of its times in logarithms, and the numbers."""
    from kvsim.errors import unknown

    if operator not in profile.operators:
        raise unknown("operator", operator, profile.operators)
    *places, last = profile.axes(operator)
    console.print(f"[bold]{operator}[/] ({', '.join(places)}): {last} -> microseconds")
    for one in profile.series(operator):
        times = " ".join(f"{x}:{t:g}" for x, t in zip(one["x"], one["median"], strict=True))
        place = ", ".join(map(str, one["at"]))
        console.print(f"  {place:28} {spark(one['median'])}  {times}", soft_wrap=True)


def spark(times: list[Any]) -> str:
    """Times as bars, by their logarithms."""
    from math import log

    heights = [log(time) for time in times]
    low, span = min(heights), (max(heights) - min(heights)) or 1.0
    return "".join(BARS[int((height - low) / span * (len(BARS) - 1))] for height in heights)
