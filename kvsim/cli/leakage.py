"""``kvsim leakage``: what an observer of its own latencies learns about the prompts of others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.cli.common import flag_option, require_simulated, with_scenario
from kvsim.cli.output import PIPE_WIDTH, Output
from kvsim.errors import ConfigError
from kvsim.files import require_folder
from kvsim.scenario import Scenario

if TYPE_CHECKING:
    from kvsim.leakage import Finding, Leakage
    from kvsim.leakage.probes import Probing


def asked(*written: str, help: str) -> Any:
    """A flag about the observer."""
    return flag_option(*written, help=help, panel="Observer")


@with_scenario
def leakage(
    trace: Annotated[str, typer.Argument(help="A request trace.")],
    defences: Annotated[
        str, asked(help="By commas: none, salt:SCOPE, round:SECONDS, noise:MEAN SECONDS.")
    ] = "none,salt:tenant,round:0.1,noise:0.1",
    probes: Annotated[
        int, asked(help="Most requests of the observer; half repeat a prompt.")
    ] = 400,
    probe_tokens: Annotated[
        int | None,
        asked(help="Tokens of a prompt that a probe repeats; without, where most prompts differ."),
    ] = None,
    lag: Annotated[float, asked(help="Seconds from a request to the probe that repeats it.")] = 10,
    plots: Annotated[
        Path | None, flag_option(help="Draw figures into this folder.", panel="Results")
    ] = None,
    *,
    scenario: Scenario,
    output: Output,
) -> None:
    """Measure how well times to first token tell whether somebody has sent a prompt."""
    from kvsim.leakage import Question, study
    from kvsim.leakage.defences import read_defences
    from kvsim.leakage.probes import Probing

    if output == "csv":
        raise ConfigError("leakage is printed as table or json")
    if scenario.isolation != "global":
        raise ConfigError(
            f"--isolation {scenario.isolation} is a defence here; accepted: --defences "
            f"salt:{scenario.isolation}"
        )
    if scenario.quotas:
        raise ConfigError(
            "--quotas need isolation, which is compared here; accepted: kvsim leakage without --quotas"
        )
    require_simulated(scenario, "kvsim leakage")
    if plots is not None:
        require_folder(plots, ".png")
    probing = Probing(probes, probe_tokens, lag)
    found = study(Question(scenario, trace, read_defences(defences), probing))
    if plots is not None:
        from kvsim.leakage.figures import write_figures

        write_figures(found, plots)
    if output == "json":
        print_json(trace, probing, found)
    else:
        print_table(found, lag)


def print_json(trace: str, probing: Probing, found: Leakage) -> None:
    """One object on standard output."""
    from dataclasses import asdict

    from kvsim.runs import to_json

    asked = {**asdict(probing), "tokens": found.tokens}
    defences = {one.defence: one.as_dict() for one in found.findings}
    document = {"trace": Path(trace).name, "probing": asked, "defences": defences}
    sys.stdout.write(to_json(document).decode())


COLUMNS = (
    "repeats: hit",
    "TTFT p5 / p50 / p95, ms",
    "controls: hit",
    "TTFT p5 / p50 / p95, ms",
    "AUC",
    "advantage",
    "requests needed",
    "others: hits",
    "TTFT, ms",
)


def print_table(found: Leakage, lag: float) -> None:
    """A row for each defence: what the observer sees and learns, and what all others pay."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)
    first = found.findings[0]
    console.print(
        f"{first.repeats.probes} probes repeat the first {found.tokens:,} tokens of somebody's prompt "
        f"{lag:g} s later, {first.controls.probes} have as many that nobody sent."
    )
    table = Table("defence", box=None, pad_edge=False, header_style="bold")
    for title in COLUMNS:
        table.add_column(title, justify="right")
    for one in found.findings:
        table.add_row(one.defence, *cells(one))
    console.print(table)
    console.print(
        "advantage: TPR - FPR of the best threshold, ± 1.96 standard errors. requests needed: independent "
        "observations until\neach mistake is at most 5 % likely. The observer's network adds noise of its "
        "own, which is not simulated."
    )


def cells(one: Finding) -> list[str]:
    """A row of the table."""
    needed = "cannot tell" if one.requests_needed is None else f"{one.requests_needed:,}"
    shown = []
    for sample in (one.repeats, one.controls):
        times = " / ".join(f"{sample.ttft_ms[key]:,.1f}" for key in ("p5", "p50", "p95"))
        shown += [f"{sample.hit_share:.1%}", times]
    return [
        *shown,
        f"{one.auc:.3f}",
        f"{one.advantage:+z.3f} ± {1.96 * one.advantage_error:.3f}",
        needed,
        f"{one.hit_rate:.1%}",
        f"{one.mean_ttft_ms:,.2f}",
    ]
