"""Times that were measured on a GPU, operator by operator, and what lies between and beyond them.

A profile is a JSON file that ``kvsim calibrate`` writes; ``profiles/`` holds those that are shipped.
Its tables are grids: times are made monotone along their last axis (isotonic regression), and linear
between neighbours along every axis. Beyond a grid they go on as its last stretch does.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from kvsim.costs.levelling import isotonic
from kvsim.costs.schema import NAMES, check_profile
from kvsim.errors import ConfigError, unknown

SHIPPED = Path(__file__).parent / "profiles"

Provenance = Literal["measured", "interpolated", "extrapolated", "projected"]
ORDER: tuple[Provenance, ...] = ("measured", "interpolated", "extrapolated", "projected")
"""From the most to the least certain."""
SCATTERED = {"moe"}
"""Tables whose places are no grid: only times at these very places."""
TILES = {
    "rms_norm": ("width", 256),
    "silu_mul": ("width", 512),
    "prefill_attention": ("new", 64),
}
"""Axes along which a kernel works in whole tiles: sizes beyond one are rounded up before a look."""
FLAT = {"block_size"}
"""Axes along which nothing changes beyond the largest size: a block of 256 already fills whole tiles."""
STREAMED = {"rms_norm", "rope", "silu_mul", "embedding", "kv_write"}
"""Tables of operators that take their time from the bytes of all rows: between two widths, times are
compared where the batches are equally large."""

Place = tuple[int | str, ...]


class Estimate(NamedTuple):
    """A time in microseconds, what it may lie between, and where it comes from."""

    time: float
    low: float
    high: float
    provenance: Provenance

    def scaled(self, factor: float, provenance: Provenance | None = None) -> Estimate:
        """The time of something ``factor`` times as long."""
        kind = self.provenance if provenance is None else worse(self.provenance, provenance)
        return Estimate(self.time * factor, self.low * factor, self.high * factor, kind)

    def then(self, other: Estimate) -> Estimate:
        """One after the other."""
        kind = worse(self.provenance, other.provenance)
        return Estimate(self.time + other.time, self.low + other.low, self.high + other.high, kind)

    def toward(self, other: Estimate, weight: float, provenance: Provenance) -> Estimate:
        """On the line to another estimate, ``weight`` of the way."""
        kind = worse(self.provenance, other.provenance, provenance)
        rest = 1 - weight
        return Estimate(
            rest * self.time + weight * other.time,
            rest * self.low + weight * other.low,
            rest * self.high + weight * other.high,
            kind,
        )

    def beyond(self, last: Estimate, weight: float) -> Estimate:
        """On the same line past the other estimate, but no less than that."""
        found = self.toward(last, weight, "extrapolated")
        time, low, high = map(max, found[:3], last[:3])
        return found._replace(time=time, low=low, high=high)


def worse(*kinds: Provenance) -> Provenance:
    """The least certain of several provenances."""
    return max(kinds, key=ORDER.index)


class Line:
    """Times of one place of a table along its last axis, which do not fall if it is ``rising``."""

    def __init__(
        self, xs: Sequence[int], series: Mapping[str, Sequence[float]], *, rising: bool = True
    ) -> None:
        self.xs = list(xs)
        self._series, self._rising = series, rising

    @cached_property
    def points(self) -> list[Estimate]:
        """The times at ``xs``."""
        columns = (self._series[name] for name in ("median", "p10", "p90"))
        medians, lows, highs = (isotonic(c) if self._rising else list(c) for c in columns)
        times = zip(medians, lows, highs, strict=True)
        return [Estimate(time, low, high, "measured") for time, low, high in times]

    def at(self, x: float) -> Estimate:
        """The time at ``x``."""
        xs, points = self.xs, self.points
        i = bisect_left(xs, x)
        if i < len(xs) and xs[i] == x:
            return points[i]
        if i == 0 or len(xs) == 1:
            return points[0]._replace(provenance="extrapolated")
        inside = i < len(xs)
        i = min(i, len(xs) - 1)
        weight = (x - xs[i - 1]) / (xs[i] - xs[i - 1])
        if inside:
            return points[i - 1].toward(points[i], weight, "interpolated")
        return points[i - 1].beyond(points[i], weight)


Node = dict[int | str, Any]
"""Values of one axis, each with the node of the next axis, or a Line after the last."""


class Table:
    """All measured times of one operator."""

    def __init__(self, name: str, axes: Sequence[str], series: Sequence[Mapping[str, Any]]) -> None:
        self.name, self.axes = name, tuple(axes)
        self.root: Node = {}
        self._places = [one["at"] for one in series]
        for one in series:
            node = self.root
            for value in one["at"][:-1]:
                node = node.setdefault(value, {})
            node[one["at"][-1]] = Line(one["x"], one)

    @cached_property
    def xs(self) -> list[int]:
        """Every measured value of the last axis."""
        return sorted({x for line in self.lines() for x in line.xs})

    @cached_property
    def before_last(self) -> list[int]:
        """Every measured value of the axis before the last, if those are numbers."""
        return sorted({int(place[-1]) for place in self._places})

    def lines(self) -> Iterator[Line]:
        """All lines."""
        nodes: list[Any] = [self.root]
        while nodes:
            node = nodes.pop()
            if isinstance(node, Line):
                yield node
            else:
                nodes.extend(node.values())

    def values(self, *names: str) -> list[int | str]:
        """What the axis after these names was measured at; nothing where they are unknown."""
        node = self.root
        for name in names:
            node = node.get(name, {})
        return list(node)

    def at(self, place: Sequence[float | str], x: float) -> Estimate:
        """The time at a place and ``x``; ConfigError for a name that was not measured."""
        return self._find(self.root, 0, place, x)

    def bends(self, place: Sequence[float | str]) -> list[float]:
        """Values of the last axis at which the times of a place bend, ascending."""
        return sorted(set(self._bends(self.root, 0, place)))

    def _bends(self, node: Any, depth: int, place: Sequence[float | str]) -> Iterator[float]:
        if isinstance(node, Line):
            yield from node.xs
            return
        value: Any = tiled(self.name, self.axes[depth], place[depth])
        sides = self._sides(node, depth, value)
        streamed = self.name in STREAMED and len(sides) > 1
        for side in sides:
            for x in self._bends(node[side], depth + 1, place):
                yield x * side / value if streamed else x

    def _find(self, node: Any, depth: int, place: Sequence[float | str], x: float) -> Estimate:
        if isinstance(node, Line):
            return node.at(x)
        value: Any = tiled(self.name, self.axes[depth], place[depth])
        sides = self._sides(node, depth, value)
        streamed = self.name in STREAMED and len(sides) > 1
        found = [
            self._find(node[side], depth + 1, place, x * value / side if streamed else x)
            for side in sides
        ]
        if len(found) == 1:
            near: Provenance = "interpolated" if sides[0] == value else "extrapolated"
            kind = "measured" if sides[0] == place[depth] else near
            return found[0]._replace(provenance=worse(found[0].provenance, kind))
        low, high = found
        weight = (value - sides[0]) / (sides[1] - sides[0])
        if weight > 1:
            return low.beyond(high, weight)
        return low.toward(high, weight, "interpolated")

    def _sides(self, node: Node, depth: int, value: Any) -> list[Any]:
        """The value of an axis if it was measured, or that or those which its time follows from."""
        if value in node:
            return [value]
        axis = self.axes[depth]
        if axis in NAMES or isinstance(value, str) or self.name in SCATTERED:
            raise ConfigError(f"the profile has no {self.name} of {axis} {value!r}")
        known = sorted(node)
        if len(known) == 1 or value < known[0]:
            return known[:1]
        if axis in FLAT and value > known[-1]:
            return known[-1:]
        i = min(bisect_left(known, value), len(known) - 1)
        return known[i - 1 : i + 1]


def tiled(table: str, axis: str, value: float | str) -> float | str:
    """A size rounded up to whole tiles of the kernel that was timed."""
    tiles_of, tile = TILES.get(table, ("", 1))
    if axis != tiles_of or isinstance(value, str) or value <= tile:
        return value
    return -int(-value // tile) * tile


class Profile:
    """The tables of one GPU."""

    def __init__(self, data: Mapping[str, Any], source: str) -> None:
        """``data`` as read from the file; ConfigError if it is none of a profile."""
        check_profile(data, source)
        self.source = source
        self.gpu: str = data["gpu"]
        self.runs: Sequence[Mapping[str, Any]] = data["runs"]
        self.complete: bool = data["complete"]
        self._axes, self._data = data["axes"], data["tables"]
        self.held_out: Mapping[str, Sequence[Mapping[str, Any]]] = data["held_out"]
        """Timed shapes that are on no grid, as the tables."""
        self._tables: dict[str, Table] = {}

    @property
    def operators(self) -> list[str]:
        """Names of the tables."""
        return list(self._data)

    def table(self, name: str) -> Table:
        """The table of an operator; ConfigError if it was not measured."""
        if name not in self._tables:
            series = self.series(name)
            self._tables[name] = Table(name, self._axes[name], series)
        return self._tables[name]

    def line(self, table: str, name: str) -> Line:
        """Times by size alone of a kind; ConfigError if it was not measured."""
        lines = self.table(table).root
        if name not in lines:
            raise ConfigError(f"{self.source}: has no {table} of {self.axes(table)[0]} {name!r}")
        return cast(Line, lines[name])

    def series(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The table of an operator as it was measured; ConfigError if it was not."""
        if name not in self._data:
            raise ConfigError(f"{self.source}: has no table {name!r}")
        return cast(Sequence[Mapping[str, Any]], self._data[name])

    def axes(self, name: str) -> Sequence[str]:
        """Names of a table's axes."""
        return cast(Sequence[str], self._axes[name])

    @cached_property
    def launch(self) -> float:
        """Microseconds that a kernel takes in a graph though it does next to nothing."""
        line = self.line("launch", "graph")
        return line.points[-1].time / line.xs[-1]


def load_profile(name: str) -> Profile:
    """A shipped profile by its name, or one from a file."""
    path = SHIPPED / f"{name.lower()}.json"
    if "/" in name or name.endswith(".json"):
        path = Path(name)
    elif not path.is_file():
        raise unknown("profile", name, shipped())
    return _read(path)


@cache
def _read(path: Path) -> Profile:
    return Profile(read_profile(path), path.name)


def read_profile(path: Path) -> Any:
    """What the file of a profile holds, unchecked; ConfigError if it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not a profile: {error}") from None


def shipped() -> list[str]:
    """Names of the shipped profiles."""
    return sorted(path.stem for path in SHIPPED.glob("*.json"))


def quantile(values: Sequence[float], share: float) -> float:
    """A quantile with linear interpolation."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
