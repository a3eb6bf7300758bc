"""What a file must hold to be a profile: every part is looked at before any of it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kvsim.errors import ConfigError

SCHEMA_VERSION = 1
NAMES = {"kernel", "dtype", "kv_dtype", "kind", "mode"}
"""Axes whose values are names; between names nothing lies."""
POINT = ("x", "median", "p10", "p90", "repeats")
FIELDS = {
    "gpu": str, "scope": str, "complete": bool, "runs": list, "failed": list, "axes": dict,
    "tables": dict, "held_out": dict,
}  # fmt: skip
RUN = {"date": str, "device": str, "torch": str, "triton": str, "clocks_mhz": dict}
OPTIONS = {"scope": str, "only": list, "resume": bool}
"""Of a run that says with what it was started."""
LEAST = {"gpus": 2}
"""Smallest size on an axis where it is not 1: one GPU alone sends nothing."""
MOST = 10**15
"""Largest number on an axis."""

Refuse = Callable[[str, object, str], ConfigError]


def check_profile(data: Any, source: str) -> None:
    """Raise a ConfigError that names what is wrong with a profile."""

    def refuse(field: str, seen: object, accepted: str) -> ConfigError:
        return ConfigError(f"{source}: {field} is {str(seen)[:60]!r}: expected {accepted}")

    if not isinstance(data, dict):
        raise refuse("the file", type(data).__name__, "an object")
    if data.get("schema_version") != SCHEMA_VERSION:
        raise refuse("schema_version", data.get("schema_version"), str(SCHEMA_VERSION))
    check_fields(data, FIELDS, "", refuse)
    check_names(data["failed"], "failed", refuse)
    for i, run in enumerate(data["runs"]):
        check_run(run, f"runs[{i}]", refuse)
    for name, axes in data["axes"].items():
        if not axes:
            raise refuse(f"axes.{name}", axes, "a list of names, not empty")
        check_names(axes, f"axes.{name}", refuse)
    for part in ("tables", "held_out"):
        for name, series in data[part].items():
            check_table(series, data["axes"].get(name), f"{part}.{name}", refuse)


def check_fields(data: Any, kinds: Mapping[str, type], where: str, refuse: Refuse) -> None:
    """Raise for a field that is missing or of another kind."""
    for field, kind in kinds.items():
        if not isinstance(data.get(field), kind):
            raise refuse(f"{where}{field}", data.get(field), f"a {kind.__name__}")


def check_names(names: Any, where: str, refuse: Refuse) -> None:
    """Raise for anything but a list of texts."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise refuse(where, names, "a list of names")


def check_run(run: Any, where: str, refuse: Refuse) -> None:
    """Raise for a run that does not say on what it measured, or when."""
    if not isinstance(run, dict):
        raise refuse(where, run, f"an object of {', '.join(RUN)}")
    check_fields(run, RUN, f"{where}.", refuse)
    if "options" in run:
        check_fields(run, {"options": dict}, f"{where}.", refuse)
        check_fields(run["options"], OPTIONS, f"{where}.options.", refuse)
        check_names(run["options"]["only"], f"{where}.options.only", refuse)
    clocks = {f"{where}.clocks_mhz.{name}": mhz for name, mhz in run["clocks_mhz"].items()}
    for name, value in {**clocks, f"{where}.seconds": run.get("seconds")}.items():
        if value is not None and not between(value, 0, MOST):
            raise refuse(name, value, "a number")
    processors = run.get("multiprocessors", 1)
    if type(processors) is not int or not 1 <= processors <= MOST:
        raise refuse(f"{where}.multiprocessors", processors, "a whole number of at least 1")


def check_table(series: Any, axes: Sequence[str] | None, where: str, refuse: Refuse) -> None:
    """Raise for a table without axes or times."""
    if axes is None:
        raise refuse(where, "without axes", "its axes under 'axes'")
    if not isinstance(series, list) or not series:
        raise refuse(where, series, "a list of series, not empty")
    for i, one in enumerate(series):
        check_series(one, axes, f"{where}[{i}]", refuse)


def check_series(one: Any, axes: Sequence[str], where: str, refuse: Refuse) -> None:
    """Raise for a series whose parts do not fit together or whose times are none."""
    if not isinstance(one, dict) or not all(isinstance(one.get(n), list) for n in ("at", *POINT)):
        raise refuse(where, one, f"an object of lists: at, {', '.join(POINT)}")
    check_place(one["at"], axes[:-1], f"{where}.at", refuse)
    if not one["x"] or len({len(one[name]) for name in POINT}) != 1:
        raise refuse(where, [len(one[name]) for name in POINT], "columns of one length, not 0")
    for name in POINT:
        column = one[name]  # NaN is in no range, and True is no int here
        if not {*map(type, column)} <= {int, float} or not all(0 <= x <= MOST for x in column):
            raise refuse(f"{where}.{name}", one[name], "numbers, none negative")
    ascending = all(a < b for a, b in zip(one["x"], one["x"][1:], strict=False))
    if not ascending or {*map(type, one["x"])} != {int}:
        raise refuse(f"{where}.x", one["x"], "ascending whole numbers")
    for low, middle, high in zip(one["p10"], one["median"], one["p90"], strict=True):
        if not 0 < low <= middle <= high < 1e9:
            raise refuse(
                f"{where}: p10, median, p90", (low, middle, high), "0 < p10 <= median <= p90"
            )


def check_place(place: Sequence[Any], axes: Sequence[str], where: str, refuse: Refuse) -> None:
    """Raise for a place that is not a name or a whole size on every axis."""
    if len(place) != len(axes):
        raise refuse(where, place, f"{len(axes)} values")
    for axis, value in zip(axes, place, strict=True):
        least = LEAST.get(axis, 1)
        if axis in NAMES:
            if not isinstance(value, str):
                raise refuse(f"{where}, {axis}", value, "a name")
        elif type(value) is not int or not least <= value <= MOST:
            raise refuse(f"{where}, {axis}", value, f"a whole number of at least {least}")


def between(value: object, least: float, most: float) -> bool:
    """Whether something is a number in a range; NaN is in none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return least <= value <= most
