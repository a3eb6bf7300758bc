"""What can be reported on, recognised by what lies in the folder: runs, sweeps and plans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kvsim.errors import ConfigError
from kvsim.reporting.alternative import Terms
from kvsim.reporting.document import Document
from kvsim.reporting.paid import Prices
from kvsim.reporting.plans import of_plan
from kvsim.reporting.runs import of_runs
from kvsim.reporting.saved import PLAN, load_plan
from kvsim.reporting.sweeps import of_sweep
from kvsim.runs import MANIFEST, RunResult, load_run
from kvsim.sweeping.database import FILE
from kvsim.sweeping.results import load_sweep

NEEDED = ("completed", "num_rejected")
"""Keys without which a summary says nothing."""


def documents(paths: Sequence[Path], terms: Terms, command: str) -> list[Document]:
    """One document for all runs together, one for each sweep and each plan, in their order."""
    kinds = {kind(path) for path in paths}
    if kinds == {PLAN} and terms != Terms(Prices(terms.prices.today)):
        raise ConfigError(
            f"{paths[0]}: a plan has its own objective and prices, which flags do not change; accepted: "
            "kvsim plan with these flags, whose replays are remembered"
        )
    runs = [checked(path) for path in paths if kind(path) == MANIFEST]
    found: list[Document] = []
    for path in paths:
        if kind(path) == FILE:
            found.append(of_sweep(path, load_sweep(path), terms, command))
        elif kind(path) == PLAN:
            found.append(of_plan(*load_plan(path)))
        elif runs:
            found.append(of_runs(runs, terms, command))
            runs = []
    return found


def kind(path: Path) -> str:
    """The file by which a folder is known; ConfigError if it has none."""
    if path.is_file() and path.suffix == ".json":
        return PLAN
    if not path.is_dir():
        what = "is not a folder" if path.exists() else "does not exist"
        raise ConfigError(f"{path}: {what}; accepted: the folder of a run, a sweep or a plan")
    for name in (MANIFEST, FILE, PLAN):
        if (path / name).is_file():
            return name
    raise ConfigError(f"{path}: holds no run, sweep or plan ({MANIFEST}, {FILE} or {PLAN})")


def checked(path: Path) -> RunResult:
    """A run whose tables can be read and whose summary has what every summary has."""
    run = load_run(path)
    for key in NEEDED:
        if not isinstance(run.summary.get(key), int):
            raise ConfigError(f"{path}: summary.json: {key} is missing or no whole number")
    len(run.requests), len(run.samples)
    return run
