"""A comparison of predictions with measurements as one HTML page, with its numbers as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence as Seq
from pathlib import Path

from kvsim import __version__
from kvsim.errors import ConfigError
from kvsim.files import require_file, whole_file
from kvsim.reporting.pages import environment
from kvsim.reporting.render import check_targets
from kvsim.validation.measured import RunReport

SUFFIX = ".html"


def check_report(path: Path, *read: Path) -> None:
    """ConfigError, before any work, for a file that could not be written or is also ``read``."""
    check_targets("--report", [path], [SUFFIX], read=read)
    require_file(path.with_suffix(".json"), *read)


def write_report(runs: Seq[RunReport], path: Path) -> None:
    """Write the page, and beside it what ``--json`` prints."""
    from kvsim.validation import summary

    if not runs:
        raise ConfigError("--report: none of the recordings is a measured run")
    found = summary(runs)
    numbers = (json.dumps(found, indent=1) + "\n").encode()
    for place, content in (
        (path, page(runs, found).encode()),
        (path.with_suffix(".json"), numbers),
    ):
        with whole_file(place) as file:
            file.write(content)


def page(runs: Seq[RunReport], found: dict[str, object]) -> str:
    """One self-contained page."""
    from kvsim.validation.figures import strip

    made = environment("kvsim.validation", percent=percent)
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
    return "-" if share is None else f"{share:+z.1%}"
