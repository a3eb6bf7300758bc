"""How results reach standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from kvsim.errors import shown

if TYPE_CHECKING:
    from kvsim.runs import RunResult

OUTPUTS = ("table", "json", "csv")
Output = Literal["table", "json", "csv"]

PIPE_WIDTH = 200
"""Columns for a table that does not go to a terminal."""


def show_results(results: Sequence[RunResult], output: Output) -> None:
    """Print one run, or a comparison of several."""
    from kvsim import export

    if output == "json":
        sys.stdout.write(export.json_of(results))
        return
    if output == "csv":
        sys.stdout.write(export.csv_of(results))
        return
    from rich.console import Console

    from kvsim import report
    from kvsim.cli.isolation import print_tenants

    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    if len(results) == 1:
        report.print_summary(results[0], console)
    else:
        report.print_comparison(results, console)
    print_tenants(results, export.names(results), console)


def note_absent(tenants: Iterable[str]) -> None:
    """Say on stderr which tenants have a quota, but no request."""
    named = ", ".join(map(shown, tenants))
    if named:
        print(f"kvsim: note: --quotas names who has no request: {named}", file=sys.stderr)
