"""What a reproduction finds: published figures beside reproduced ones, and under which assumptions."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import ClassVar, Protocol

from kvsim.errors import ConfigError

MOST = 10_000_000
"""Of anything that an option counts or measures."""


def amounts(**options: float) -> None:
    """Refuse options that are no amounts: ConfigError if one is not above 0, or too large."""
    for name, value in options.items():
        if not 0 < value <= MOST:
            raise ConfigError(f"{name} is {value}; accepted: above 0, at most {MOST:,}")


@dataclass(frozen=True, slots=True)
class Published:
    """A figure as it was published; a single value has ``low == high``."""

    low: float
    high: float
    unit: str
    """``%``, ``x`` or none."""
    source: str
    confidence: str

    def gap(self, value: float) -> float:
        """By how much a value lies outside, signed; 0 within."""
        return value - min(max(value, self.low), self.high)


@cache
def published(reproduction: str) -> dict[str, Published]:
    """The published figures of one reproduction, by quantity (``published.csv``)."""
    text = files("kvsim.reproductions").joinpath("published.csv").read_text(encoding="utf-8")
    return {
        row["quantity"]: Published(
            float(row["low"]), float(row["high"]), row["unit"], row["source"], row["confidence"]
        )
        for row in csv.DictReader(text.splitlines())
        if row["reproduction"] == reproduction
    }


@dataclass(frozen=True, slots=True)
class Row:
    """A reproduced quantity, beside what was published if anything was."""

    quantity: str
    reproduced: float | None
    """None: not reproduced, and a note says why."""
    published: Published | None = None
    unit: str = "%"
    """Where nothing was published."""

    @property
    def gap(self) -> float | None:
        """Reproduced less published, in their unit; None where one of them is missing."""
        if self.published is None or self.reproduced is None:
            return None
        return self.published.gap(self.reproduced)


@dataclass(frozen=True, slots=True)
class Bars:
    """A stacked bar for each label; ``parts`` are named shares in percent."""

    title: str
    unit: str
    labels: tuple[str, ...]
    parts: dict[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Lines:
    """Curves over a common axis; points as (x, y)."""

    title: str
    x: str
    y: str
    curves: dict[str, tuple[tuple[float, float], ...]]
    log: bool = False
    """Whether x is logarithmic."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of one reproduction."""

    rows: tuple[Row, ...]
    assumptions: tuple[str, ...]
    """What had to be assumed, and what may explain the gaps."""
    chart: Bars | Lines


class Reproduction(Protocol):
    """A published table or figure that can be replayed. The constructor's keywords are its options."""

    title: ClassVar[str]
    source: ClassVar[str]

    def run(self) -> Findings:
        """Replay it. Deterministic for the same options."""
        ...
