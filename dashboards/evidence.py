"""What the times rest on: kernels as they were timed, and predictions of measured engine runs."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import orjson
from pydantic import TypeAdapter, ValidationError

from kvsim.catalog import load_gpu
from kvsim.costs.bounds import BOUNDS, least
from kvsim.costs.operators import Profile
from kvsim.errors import ConfigError

REPORTS = Path(__file__).resolve().parent.parent / "reports" / "validation"
"""In a checkout; an installed kvsim has none."""
LARGEST = 16_000_000
OPERATORS = ("gemm", "decode_attention", "prefill_attention", "copy")


class Timed(NamedTuple):
    """One series of a profile beside its bound; microseconds."""

    place: tuple[int | str, ...]
    x: list[int]
    low: list[float]
    """P10 of the repetitions."""
    median: list[float]
    high: list[float]
    """P90."""
    bound: list[float]
    """Below which no machine with the GPU's peaks can do it."""

    @property
    def name(self) -> str:
        """Its place in the table."""
        return ", ".join(map(str, self.place))


def timed(profile: Profile, operator: str) -> list[Timed]:
    """The series of an operator that has a roofline."""
    assert operator in BOUNDS or operator == "copy"
    gpu = load_gpu(profile.gpu)
    found = []
    for series in profile.series(operator):
        place = tuple(series["at"])
        demands = [least(operator, place, x) for x in series["x"]]
        bounds = [0.0 if demand is None else demand.bound(gpu) for demand in demands]
        found.append(
            Timed(place, series["x"], series["p10"], series["median"], series["p90"], bounds)
        )
    return found


class Metric(NamedTuple):
    """A figure of an engine's run, in its own unit."""

    measured: float
    predicted: float

    @property
    def error(self) -> float | None:
        """Relative; None where nothing was measured."""
        return self.predicted / self.measured - 1 if self.measured else None


class EngineRun(NamedTuple):
    """A measured run and what was predicted for it."""

    name: str
    metrics: dict[str, Metric]


def validations(*folders: Path) -> tuple[list[EngineRun], list[ConfigError]]:
    """The comparisons that ``kvsim validate --json`` wrote into folders, and what is wrong with others."""
    runs: dict[str, EngineRun] = {}
    problems = []
    for path in (path for folder in folders for path in sorted(folder.glob("*.json"))):
        if path.is_symlink() or not path.is_file():
            continue
        try:
            runs |= {run.name: run for run in validation(path)}
        except ConfigError as error:
            problems.append(error)
    return list(runs.values()), problems


def validation(path: Path) -> list[EngineRun]:
    """The comparisons of one file; none if it holds something else."""
    try:
        if path.stat().st_size > LARGEST:
            return []
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return []
    listed = value.get("runs") if isinstance(value, dict) else None
    if not isinstance(listed, list):
        return []
    try:
        return [read_run(each) for each in listed]
    except (KeyError, TypeError, AttributeError, ValidationError):
        raise ConfigError(f"{path.name}: is no validation that this kvsim reads") from None


def read_run(value: dict[str, dict[str, dict[str, float]]]) -> EngineRun:
    """A run from JSON values."""
    number = TypeAdapter(float)
    metrics = {
        name: Metric(
            number.validate_python(each["measured"]), number.validate_python(each["predicted"])
        )
        for name, each in value["metrics"].items()
        if isinstance(each, dict) and None not in (each.get("measured"), each.get("predicted"))
    }
    return EngineRun(str(value["name"]), metrics)
