"""``kvsim plan``: how many of which GPUs serve a trace within its objectives, and what it costs."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.cli.common import flag_option, with_scenario
from kvsim.cli.output import PIPE_WIDTH, Output
from kvsim.errors import ConfigError, SloError
from kvsim.scenario import Scenario

if TYPE_CHECKING:
    from datetime import date

    from kvsim.planning import Plan, Question
    from kvsim.planning.question import Owned


def asked(*written: str, help: str, metavar: str | None = None) -> Any:
    """A flag about what is asked."""
    return flag_option(*written, help=help, panel="Plan", metavar=metavar)


def priced(*written: str, help: str) -> Any:
    """A flag about money."""
    return flag_option(*written, help=help, panel="Prices and energy")


@with_scenario
def plan(
    trace: Annotated[str, typer.Argument(help="A request trace.")],
    gpu: Annotated[str | None, asked(help="GPU types to choose from, by commas.")] = None,
    slo: Annotated[
        list[str] | None,
        asked(help="ttft_p99=2s for the run, ttft=2s for each request. Repeatable."),
    ] = None,
    attainment: Annotated[
        float | None, asked(help="Share of requests that must meet every limit.")
    ] = None,
    tensor_parallel_size: Annotated[
        str | None,
        asked(help="Tensor parallel sizes to try, by commas; without, 1,2,4,8.", metavar="LIST"),
    ] = None,
    token_budgets: Annotated[
        str | None, asked(help="Tokens in an iteration to try, by commas; auto: the engine's own.")
    ] = None,
    max_gpus: Annotated[int, asked(help="Most GPUs of a fleet.")] = 128,
    headroom: Annotated[
        float, asked(help="Meet the objective at this much more traffic: 0.2.")
    ] = 0.0,
    calibration_error: Annotated[
        float | None, asked(help="How wrong the times may be, as a share.")
    ] = None,
    quick: Annotated[
        bool, asked("--quick", help="Only the fleets: no rates, no sensitivity.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; without, one for each CPU.")
    ] = None,
    report: Annotated[
        list[Path] | None, asked(help="Write a report: .html, .md or .json. Repeatable.")
    ] = None,
    price_file: Annotated[
        Path | None, priced(help="CSV of prices instead of the catalog's.")
    ] = None,
    gpu_price: Annotated[
        list[str] | None, priced(help="Dollars per GPU-hour: 2.10, or h200=2.10. Repeatable.")
    ] = None,
    provider: Annotated[str, priced(help="Whose prices; any: the cheapest list.")] = "aws",
    commitment: Annotated[
        str, priced(help="on-demand, spot, capacity block, or a kind of the price file.")
    ] = "on-demand",
    region: Annotated[str | None, priced(help="Only prices of this region.")] = None,
    as_of: Annotated[
        str | None, priced(help="Day by which prices are old (2026-11-29); without, today.")
    ] = None,
    pue: Annotated[float, priced(help="Power usage effectiveness of the site.")] = 1.3,
    electricity_price: Annotated[float, priced(help="Dollars per kWh.")] = 0.10,
    carbon_intensity: Annotated[float | None, priced(help="Grams of CO2 per kWh.")] = None,
    idle_power: Annotated[float, priced(help="Share of the design power drawn when idle.")] = 0.15,
    power_load: Annotated[
        float | None, priced(help="Share of time at full power, instead of the replay's.")
    ] = None,
    capex: Annotated[
        list[str] | None, priced(help="Own the GPUs: dollars for one, or h200=31000. Repeatable.")
    ] = None,
    years: Annotated[float, priced(help="Years of depreciation of owned GPUs.")] = 4.0,
    owned_utilisation: Annotated[
        float, priced(help="Share of time that owned GPUs serve this workload.")
    ] = 1.0,
    staff: Annotated[float, priced(help="Staff and other cost, dollars per GPU and year.")] = 0.0,
    *,
    scenario: Scenario,
    output: Output,
) -> None:
    """Find the cheapest fleet of each GPU type that serves a trace within its objectives."""
    from kvsim.planning import Question
    from kvsim.planning.objective import read_objective
    from kvsim.planning.prices import Preference, read_amount
    from kvsim.planning.question import TOKEN_BUDGETS, Electricity

    if output == "csv":
        raise ConfigError("a plan is printed as table or json; --report writes files")
    targets = list(slo or [f"{name}={limit}s" for name, limit in scenario.slo.items()])
    question = Question(
        scenario=scenario,
        trace=trace,
        gpus=names(gpu or scenario.gpu),
        objective=read_objective(targets, attainment),
        as_of=day(as_of),
        tensor_parallel_sizes=sizes(tensor_parallel_size, scenario),
        token_budgets=TOKEN_BUDGETS if token_budgets is None else budgets(token_budgets),
        max_gpus=max_gpus,
        headroom=headroom,
        calibration=calibration_error,
        preference=Preference(
            provider,
            commitment,
            region,
            price_file,
            tuple(read_amount("--gpu-price", text) for text in gpu_price or ()),
        ),
        electricity=Electricity(idle_power, power_load, pue, electricity_price, carbon_intensity),
        owned=owned(capex, years, owned_utilisation, staff),
        explore=not quick,
    )
    answer(question, jobs or os.cpu_count() or 1, report or [], output)


def answer(question: Question, jobs: int, reports: list[Path], output: Output) -> None:
    """Plan, write reports, print; SloError if nothing meets the objective."""
    from kvsim.planning import plan as planned
    from kvsim.planning.report import check_reports, write_report
    from kvsim.runs import to_json

    check_reports(reports)
    progress = Progress()
    try:
        found = planned(question, jobs=jobs, told=progress)
    finally:
        progress.clear()
    command = shlex.join(["kvsim", *sys.argv[1:]])
    for path in reports:
        write_report(found, path, command)
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


def names(text: str) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def sizes(text: str | None, scenario: Scenario) -> tuple[int, ...]:
    """Tensor parallel sizes: those of the flag, else the scenario's, else the usual ones."""
    from kvsim.planning.question import TENSOR_PARALLEL_SIZES

    if text is not None:
        return tuple(map(size, names(text)))
    given = "tensor_parallel_size" in scenario.model_fields_set
    return (scenario.tensor_parallel_size,) if given else TENSOR_PARALLEL_SIZES


def size(text: str) -> int:
    """A tensor parallel size."""
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise ConfigError(f"--tensor-parallel-size {text}: must be whole numbers as in 1,2,4,8")
    return int(text)


def budgets(text: str) -> tuple[int | None, ...]:
    """Token budgets."""
    for name in names(text):
        if name != "auto" and not (name.isdecimal() and int(name) > 0):
            raise ConfigError(f"--token-budgets {name}: must be auto or whole numbers as in 2048")
    return tuple(None if name == "auto" else int(name) for name in names(text))


def day(text: str | None) -> date:
    """The day that is meant; today if none is."""
    from datetime import date

    if text is None:
        return date.today()
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--as-of {text}: must be a day like 2026-11-29") from None


def owned(capex: list[str] | None, years: float, utilisation: float, staff: float) -> Owned | None:
    """Owned hardware, if its price was said."""
    from kvsim.planning.prices import read_amount
    from kvsim.planning.question import Owned

    if not capex:
        return None
    return Owned(tuple(read_amount("--capex", text) for text in capex), years, utilisation, staff)
