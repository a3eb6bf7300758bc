"""What is drawn, as data: :mod:`.figures` draws each kind, a spreadsheet may list it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kvsim.reporting.forms import Form

Colour = Literal["blue", "orange", "green", "sky", "pink", "amber", "grey", "pale"]
CYCLE: tuple[Colour, ...] = ("blue", "orange", "green", "pink", "sky", "amber")
"""Colours of things that are compared."""
Values = Sequence[float]


class Axis(NamedTuple):
    """A direction with its quantity."""

    label: str
    form: Form = "number"
    logarithmic: bool = False
    most: float | None = None
    """Where it ends, if the data does not say it."""


class Line(NamedTuple):
    """Values along an axis."""

    label: str
    x: Values
    y: Values
    colour: Colour
    drawn: Literal["line", "dashes", "dots", "points", "area"] = "line"
    notes: tuple[str, ...] = ()
    """A few words at each point."""


class Mark(NamedTuple):
    """A limit, or a place to look at."""

    along: Literal["x", "y"]
    at: float
    label: str
    colour: Colour = "grey"


@dataclass(frozen=True, slots=True)
class Curves:
    """Lines in one panel."""

    x: Axis
    y: Axis
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...] = ()
    height: float = 3.6
    """Inches, of a figure ten and a half inches wide; as everywhere here."""


@dataclass(frozen=True, slots=True)
class Panels:
    """Curves one above the other along the same axis, or side by side."""

    panels: tuple[Curves, ...]
    beside: bool = False
    height: float = 4.2


class Part(NamedTuple):
    """A share of every bar, or of every instant."""

    label: str
    values: Values
    colour: Colour


@dataclass(frozen=True, slots=True)
class Stack:
    """Parts of a whole along an axis."""

    x: Axis
    y: Axis
    at: Values
    parts: tuple[Part, ...]
    height: float = 3.4


@dataclass(frozen=True, slots=True)
class Bars:
    """One horizontal bar for each name, made of parts."""

    axis: Axis
    names: tuple[str, ...]
    parts: tuple[Part, ...]
    notes: tuple[str, ...]
    """What stands at the end of each bar."""

    @property
    def height(self) -> float:
        """As much as the bars need."""
        return 1.0 + 0.42 * len(self.names)


class Swing(NamedTuple):
    """What a quantity becomes when one assumption is smaller, and when it is larger."""

    label: str
    low: float
    high: float
    low_note: str
    high_note: str


@dataclass(frozen=True, slots=True)
class Tornado:
    """Swings around what is expected, the widest on top."""

    axis: Axis
    base: float
    swings: tuple[Swing, ...]

    @property
    def height(self) -> float:
        """As much as the swings need."""
        return 1.0 + 0.5 * len(self.swings)


Chart = Curves | Panels | Stack | Bars | Tornado
