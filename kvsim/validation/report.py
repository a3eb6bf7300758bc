"""A comparison of predictions with measurements as one HTML page, with its numbers as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence as Seq
from pathlib import Path

from kvsim import __version__
from kvsim.errors import ConfigError
from kvsim.validation.measured import RunReport

SUFFIX = ".html"


def check_report(path: Path) -> None:
    """ConfigError, before any work, for a file that could not be written."""
    if path.suffix != SUFFIX:
        raise ConfigError(f"--report {path}: must end in {SUFFIX}")
    if not path.parent.is_dir():
        raise ConfigError(f"--report {path}: {path.parent} is not a folder")


def write_report(runs: Seq[RunReport], path: Path) -> None:
    """Write the page, and beside it what ``--json`` prints."""
    from kvsim.validation import summary

    if not runs:
        raise ConfigError("--report: none of the recordings is a measured run")
    found = summary(runs)
    try:
        written(path, page(runs, found).encode())
        written(path.with_suffix(".json"), (json.dumps(found, indent=1) + "\n").encode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from None


def page(runs: Seq[RunReport], found: dict[str, object]) -> str:
    """One self-contained page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    from kvsim.validation.figures import strip

    made = Environment(
        loader=PackageLoader("kvsim.validation"),
        autoescape=select_autoescape(("html.j2", "html")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["percent"] = percent
    names = list(dict.fromkeys(name for run in runs for name in run.metrics))
    return made.get_template("validation.html.j2").render(
        runs=runs,
        names=names,
        found=found,
        version=__version__,
        figures=["data:image/png;base64," + base64.b64encode(strip(run)).decode() for run in runs],
    )


def percent(share: float | None) -> str:
    """A signed share."""
    return "-" if share is None else f"{share:+.1%}"


def written(path: Path, content: bytes) -> None:
    """A file that appears whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)
