"""``kvsim show``: the summary of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvsim.cli.output import Output, show_results


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    json: Annotated[bool, typer.Option("--json", help="Print summary.json, nothing else.")] = False,
    output: Annotated[Output, typer.Option("--format", help="Format of the output.")] = "table",
) -> None:
    """Print the summary of a finished run."""
    from kvsim.runs import load_run

    show_results([load_run(run)], "json" if json else output)
