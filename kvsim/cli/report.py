"""``kvsim report``: runs, sweeps and plans as a document that someone can sign."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from kvsim.cli.groups import grouped
from kvsim.cli.plan_flags import Money
from kvsim.errors import ConfigError


@grouped
def report(
    inputs: Annotated[
        list[Path], typer.Argument(metavar="RUN|SWEEP|PLAN...", help="Folders to report on.")
    ],
    money: Money,
    out: Annotated[
        list[Path] | None, typer.Option(help="File to write: .html, .md, .pdf, .csv. Repeatable.")
    ] = None,
    slo: Annotated[
        list[str] | None,
        typer.Option(help="Hold runs to ttft_p99=2s, or each request to ttft=2s. Repeatable."),
    ] = None,
    attainment: Annotated[
        float | None, typer.Option(help="Share of requests that must meet every limit.")
    ] = None,
) -> None:
    """Write a report on finished runs, sweeps and plans; several runs are compared."""
    from kvsim.reporting.alternative import Terms
    from kvsim.reporting.paid import Prices
    from kvsim.reporting.render import check_targets, write_report
    from kvsim.reporting.sources import documents

    if not out:
        raise ConfigError("--out FILE is missing: the report to write (.html, .md, .pdf, .csv)")
    check_targets("--out", out, read=[money.price_file] if money.price_file else [])
    prices = Prices(money.day, money.preference, money.electricity, money.owned)
    terms = Terms(prices, tuple(slo or ()), attainment)
    found = documents(inputs, terms, shlex.join(["kvsim", *sys.argv[1:]]))
    for path in out:
        write_report(found, path)
