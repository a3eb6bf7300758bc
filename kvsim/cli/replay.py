"""``kvsim replay``: one trace through one scenario."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.cli.common import flag_option, note_ignored, require_simulated, with_scenario
from kvsim.cli.output import Output, note_absent, show_results
from kvsim.errors import ConfigError
from kvsim.files import require_file
from kvsim.scenario import Scenario
from kvsim.slo import read_bound, require

if TYPE_CHECKING:
    from kvsim.runs import RunResult


def results_flag(*written: str, help: str) -> Any:
    """A flag of the panel about results."""
    return flag_option(*written, help=help, panel="Results")


@with_scenario
def replay(
    trace: Annotated[str, typer.Argument(help="A request trace; - is standard input.")],
    out: Annotated[Path | None, results_flag(help="Write the run to this new folder.")] = None,
    overwrite: Annotated[
        bool, results_flag("--overwrite", help="Replace the run that --out holds.")
    ] = False,
    plots: Annotated[bool, results_flag("--plots", help="Draw figures into the run.")] = False,
    trace_out: Annotated[
        Path | None, results_flag(help="Write a timeline that Perfetto and Chrome open.")
    ] = None,
    fail_on: Annotated[
        list[str] | None, results_flag(help="Exit 5 if the run exceeds ttft_p99=2s. Repeatable.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check the books after every leap. Slow.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Compare every output of an executed run with contiguous memory; exit 6 if it differs.",
        ),
    ] = False,
    sensitivity: Annotated[
        bool,
        results_flag(
            "--sensitivity", help="Replay again with iterations 1 % longer: what depends on that?"
        ),
    ] = False,
    no_leaps: Annotated[
        bool, typer.Option("--no-leaps", help="Take iterations one by one. Slow, same times.")
    ] = False,
    *,
    scenario: Scenario,
    output: Output,
) -> None:
    """Replay a request trace and report what happened."""
    from kvsim.cli.progress import watched
    from kvsim.compose import simulate

    if plots and out is None:
        raise ConfigError("--plots needs --out: the figures go into the run's folder")
    if trace_out is not None:
        require_file(trace_out, trace)
    if sensitivity:
        require_repeatable(scenario, trace)
    bounds = [read_bound(text) for text in fail_on or ()]
    result = simulate(
        scenario,
        trace,
        out=out,
        overwrite=overwrite,
        keep=trace_out is not None,
        leaps=not no_leaps,
        check=check,
        verify=verify,
        watch=lambda requests: watched(requests, scenario.workload.limit),
        name=Path(trace).name,
    )
    note_ignored(scenario)
    note_absent(result.absent)
    if verify:
        note_verified(result)
    draw(result, out / "plots" if plots and out is not None else None, trace_out)
    changes = moved(scenario, trace, result) if sensitivity else []
    show_results([result], output)
    if output == "table":
        typer.echo("\n".join(changes), nl=bool(changes))
    require(bounds, result.summary)


def require_repeatable(scenario: Scenario, trace: str) -> None:
    """ConfigError if a replay cannot be made twice with other times: executed, or of a stream."""
    require_simulated(scenario, "--sensitivity")
    if trace == "-":
        raise ConfigError("--sensitivity replays the trace twice: give a file, not standard input")


def moved(scenario: Scenario, trace: str, result: RunResult) -> list[str]:
    """Add the sensitivity of its metrics to a result's summary; returns it as lines."""
    from kvsim.validation.sensitivity import sensitivities, shown

    found = sensitivities(scenario, trace, result.summary)
    result.summary = {**result.summary, "sensitivity": found}
    return shown(found)


def note_verified(result: RunResult) -> None:
    """Say on stderr how far the outputs of an executed run were from the reference."""
    host: Any = result.manifest["host"]
    found = host["executor"]["verified"]
    print(
        f"kvsim: {found['tokens']:,} outputs of {found['sequences']:,} sequences agree with contiguous "
        f"memory: the largest relative error is {found['largest_error']:.2g}, accepted up to "
        f"{found['tolerance']:g}",
        file=sys.stderr,
    )


def draw(result: RunResult, plots: Path | None, timeline: Path | None) -> None:
    """Write figures and a timeline, where they were asked for."""
    if plots is not None:
        from kvsim.plots import write_plots

        write_plots(result, plots)
    if timeline is not None:
        from kvsim.timeline import write_timeline

        write_timeline(result, timeline)
