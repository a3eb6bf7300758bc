"""``kvsim recommend``: which techniques help which kind of use, from replays of a trace."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvsim.cli.common import flag_option, require_simulated, with_scenario
from kvsim.cli.groups import grouped
from kvsim.cli.output import PIPE_WIDTH, Output
from kvsim.cli.remember import Remember
from kvsim.errors import ConfigError
from kvsim.scenario import Scenario

if TYPE_CHECKING:
    from kvsim.advice import Advice


def asked(*written: str, help: str) -> Any:
    """A flag about what is asked."""
    return flag_option(*written, help=help, panel="Advice")


@with_scenario
@grouped
def recommend(
    trace: Annotated[str, typer.Argument(help="A request trace.")],
    remember: Remember,
    requests: Annotated[int, asked(help="Most requests to replay of each situation.")] = 1000,
    clients: Annotated[int, asked(help="How many ask at once where many do.")] = 64,
    edge_gpu: Annotated[str, asked(help="The GPU of a single user.")] = "l4",
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; without, one for each CPU.")
    ] = None,
    *,
    scenario: Scenario,
    output: Output,
) -> None:
    """Replay techniques one by one in the situations that a trace holds, and say which help."""
    from kvsim.advice import recommend as advised

    if output == "csv":
        raise ConfigError("advice is printed as table or json")
    require_simulated(scenario, "kvsim recommend")
    with remember.opened() as replays:
        found = advised(
            scenario,
            trace,
            most=requests,
            clients=clients,
            edge=edge_gpu,
            jobs=jobs or os.cpu_count() or 1,
            archive=replays,
            told=told,
        )
    show(found, output)


def told(what: str) -> None:
    """Say on a terminal's standard error what is being done."""
    if sys.stderr.isatty():
        print(f"\r\033[K{what}", end="\r", file=sys.stderr, flush=True)


def show(found: Advice, output: Output) -> None:
    """Print it."""
    if output == "json":
        from kvsim.advice.document import document
        from kvsim.runs import to_json

        sys.stdout.write(to_json(document(found)).decode())
        return
    from rich.console import Console

    from kvsim.advice.show import print_advice

    print_advice(found, Console(width=None if sys.stdout.isatty() else PIPE_WIDTH))
