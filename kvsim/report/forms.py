"""How a figure of a summary is written; a dash for what a run does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvsim.analysis.summary import Value


def count(value: Value) -> str:
    """A whole number."""
    return f"{value:,}" if isinstance(value, int) else "-"


def number(value: Value) -> str:
    """Four significant digits; from 1,000 on a whole number."""
    if not isinstance(value, int | float):
        return "-"
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:#,.4g}".removesuffix(".")


def milliseconds(value: Value) -> str:
    """A time, to 10 us."""
    return f"{value:,.2f}" if isinstance(value, int | float) else "-"


def percent(value: Value) -> str:
    """A share."""
    return f"{value:.1%}" if isinstance(value, int | float) else "-"


def short(value: Value) -> str:
    """A large number by its unit."""
    if not isinstance(value, int | float):
        return "-"
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.1f}{unit}"
    return f"{value:g}"
