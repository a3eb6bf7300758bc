"""``kvsim reproduce``: replays what papers have published and shows the gap."""

from __future__ import annotations

import inspect
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvsim.errors import ConfigError
from kvsim.files import require_folder

if TYPE_CHECKING:
    from kvsim.reproductions.findings import Findings, Reproduction


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Reproductions; --list shows all.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List what can be reproduced.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="All that the given files allow.")
    ] = False,
    trace: Annotated[
        str | None, typer.Option(help="The Mooncake conversation trace, for those that replay it.")
    ] = None,
    lengths: Annotated[
        str | None, typer.Option(help="Request lengths, instead of the ShareGPT sample within.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of what is drawn.", min=0)] = 0,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="An option of the one reproduction: requests=500."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write a page and its figure here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Reproduce published tables and figures: published beside reproduced, with the gap."""
    if listed:
        show_list()
        return
    if out is not None:
        require_folder(out, ".md", ".png")
    given = {"trace": trace, "lengths": lengths, "seed": seed}
    plans = planned(names or [], given, assignments or [], everything=everything)
    results = []
    for name, reproduction in plans.items():
        findings = reproduction.run()
        results.append((name, reproduction, findings))
        if out is not None:
            command = f"kvsim reproduce {name}{repeated(reproduction, given, assignments or [])}"
            write_page(out, name, command, reproduction, findings)
        if not as_json:
            show(reproduction, findings)
    if as_json:
        from kvsim.reproductions.document import as_dict

        typer.echo(json.dumps([as_dict(*result) for result in results]))


def show_list() -> None:
    """Print every name with its title."""
    from kvsim.reproductions import REPRODUCTIONS

    width = max(map(len, REPRODUCTIONS))
    for name, cls in REPRODUCTIONS.items():
        typer.echo(f"{name:{width}}  {getattr(cls, 'title', '')}")


def planned(
    names: list[str], given: Mapping[str, object], assignments: list[str], *, everything: bool
) -> dict[str, Reproduction]:
    """The reproductions by name, with their options."""
    from kvsim.registry import blueprint, resolve
    from kvsim.reproductions import REPRODUCTIONS
    from kvsim.reproductions.findings import Reproduction as Seam

    if bool(names) == everything:
        raise ConfigError(f"name reproductions, or --all; accepted: {', '.join(REPRODUCTIONS)}")
    if assignments and len(names) != 1:
        raise ConfigError("--set needs one reproduction that it is meant for")
    chosen = dict(_assignment(text) for text in assignments)
    plans = {}
    for name in names or REPRODUCTIONS:
        plan = blueprint(name, resolve("reproduction", Seam, REPRODUCTIONS, name), given, chosen)
        if everything and plan.keywords.get("trace", "") is None:
            print(f"kvsim: note: {name} is left out: it needs --trace", file=sys.stderr)
            continue
        plans[name] = plan.build()
    return plans


def _assignment(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ConfigError(f"--set {text!r} must be like requests=500")
    return name.strip(), value.strip()


def repeated(
    reproduction: Reproduction, given: Mapping[str, object], assignments: list[str]
) -> str:
    """The flags that make the same reproduction again."""
    known = inspect.signature(type(reproduction)).parameters
    used = {key: value for key, value in given.items() if key in known and value is not None}
    flags = "".join(f" --{key} {Path(str(value)).name}" for key, value in used.items())
    return flags + "".join(f" --set {shlex.quote(text)}" for text in assignments)


def write_page(
    folder: Path, name: str, command: str, reproduction: Reproduction, findings: Findings
) -> None:
    """Write the page of one reproduction; ``command`` makes it again."""
    from kvsim.reproductions.document import markdown, write
    from kvsim.reproductions.figures import png

    place = folder.name if folder.is_absolute() else folder
    page = markdown(name, reproduction, findings, f"{command} --out {place}")
    write(folder, name, page, png(findings.chart))


def show(reproduction: Reproduction, findings: Findings) -> None:
    """Print the table of one reproduction and what was assumed."""
    from rich.console import Console
    from rich.table import Table

    from kvsim.cli.output import PIPE_WIDTH
    from kvsim.reproductions.document import HEADER, cells

    table = Table(*HEADER, title=reproduction.title, title_justify="left", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in findings.rows:
        table.add_row(*cells(row))
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(table, highlight=False)
    console.print("Assumptions:", highlight=False)
    for assumption in findings.assumptions:
        console.print(f"- {assumption}", highlight=False, markup=False)
