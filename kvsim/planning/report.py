"""A plan as a document that someone can sign: one HTML file, or Markdown with its figures."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kvsim.errors import ConfigError
from kvsim.planning.answer import Plan
from kvsim.planning.document import document
from kvsim.planning.show import fleet, headline, price_line

if TYPE_CHECKING:
    from jinja2 import Environment

SUFFIXES = (".html", ".md", ".json")


def check_reports(paths: Iterable[Path]) -> None:
    """ConfigError, before any work, for a file that could not be written."""
    for path in paths:
        if path.suffix not in SUFFIXES:
            raise ConfigError(f"--report {path}: must end in {', '.join(SUFFIXES)}")
        if not path.parent.is_dir():
            raise ConfigError(f"--report {path}: {path.parent} is not a folder")
        if path.is_dir():
            raise ConfigError(f"--report {path}: is a folder")


def write_report(plan: Plan, path: Path, command: str) -> None:
    """Write the report in the form that the file's name asks for; ``command`` repeats the plan."""
    try:
        if path.suffix == ".json":
            from kvsim.runs import to_json

            written(path, to_json(document(plan, command)))
        elif path.suffix == ".md":
            written(path, markdown(plan, path, command).encode())
        else:
            written(path, html(plan, command).encode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from None


def html(plan: Plan, command: str) -> str:
    """One self-contained page."""
    from kvsim.planning.figures import figures

    drawn = {name: inline(content) for name, content in figures(plan).items()}
    return environment().get_template("plan.html.j2").render(context(plan, command, drawn))


def markdown(plan: Plan, path: Path, command: str) -> str:
    """Text that refers to figures in a folder beside it, which are written."""
    from kvsim.planning.figures import figures

    folder = path.with_name(f"{path.stem}_figures")
    places = {}
    for name, content in figures(plan).items():
        folder.mkdir(exist_ok=True)
        written(folder / f"{name}.png", content)
        places[name] = f"{folder.name}/{name}.png"
    return environment().get_template("plan.md.j2").render(context(plan, command, places))


def context(plan: Plan, command: str, drawn: Mapping[str, str]) -> dict[str, object]:
    """What the templates see."""
    best = plan.candidates[0] if plan.candidates else None
    return {
        "plan": document(plan, command),
        "headline": headline(plan),
        "recommended": None if best is None else fleet(best),
        "prices": [price_line(candidate) for candidate in plan.candidates],
        "figures": drawn,
    }


def environment() -> Environment:
    """Templates; HTML is escaped, and a name that does not exist is a mistake."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    made = Environment(
        loader=PackageLoader("kvsim.planning"),
        autoescape=select_autoescape(("html.j2", "html")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "money": money,
        "cents": cents,
        "percent": percent,
        "number": number,
        "cell": cell,
        "capitalize_first": capitalised,
    }
    return made


def inline(content: bytes) -> str:
    """A PNG as a data URI."""
    return "data:image/png;base64," + base64.b64encode(content).decode()


def written(path: Path, content: bytes) -> None:
    """A file that appears whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)


def money(value: float | None) -> str:
    """Whole dollars."""
    return "-" if value is None else f"${value:,.0f}"


def cents(value: float | None) -> str:
    """Dollars and cents."""
    return "-" if value is None else f"${value:,.2f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share."""
    return "-" if value is None else f"{value:.{digits}%}"


def number(value: float | None, digits: int = 2) -> str:
    """A number with a fixed count of decimals."""
    return "-" if value is None else f"{value:,.{digits}f}"


def cell(text: object) -> str:
    """Text that cannot end a cell of a Markdown table, nor be HTML."""
    plain = " ".join(str(text).split())
    for special, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("`", "'")):
        plain = plain.replace(special, safe)
    return plain


def capitalised(text: str) -> str:
    """A sentence, from its beginning."""
    return text[:1].upper() + text[1:]
