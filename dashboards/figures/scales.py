"""Ticks of logarithmic axes, as people count: few, round, with units."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..shown import quantity

FEWEST = 3
ROUND = tuple(10.0**power for power in range(-6, 16))
FINE = tuple(digit * power for power in ROUND for digit in (1, 2, 5))
UNITS = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
TIMES = (*(t for t in ROUND if t < 60), 60.0, 600.0, 3600.0, 36_000.0, 360_000.0)
FINE_TIMES = (
    *(t for t in FINE if t < 60), 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0, 7_200.0, 18_000.0,
    36_000.0, 72_000.0, 180_000.0, 360_000.0,
)  # fmt: skip


def seconds_axis(values: Iterable[float], title: str) -> dict[str, Any]:
    """A logarithmic axis of seconds."""
    return axis(values, title, (TIMES, FINE_TIMES), clock)


def amounts_axis(values: Iterable[float], title: str) -> dict[str, Any]:
    """A logarithmic axis of tokens or bytes."""
    return axis(values, title, (ROUND, FINE), quantity)


def axis(
    values: Iterable[float],
    title: str,
    steps: tuple[tuple[float, ...], tuple[float, ...]],
    text: Callable[[float], str],
) -> dict[str, Any]:
    """An axis over values, with the finer of two lists of ticks if the coarser gives too few."""
    seen = [value for value in values if value > 0] or [1.0]
    low, high = min(seen), max(seen)
    coarse, fine = ([tick for tick in ticks if low <= tick <= high] for ticks in steps)
    ticks = coarse if len(coarse) >= FEWEST else fine
    return {
        "type": "log",
        "title": title,
        "tickvals": ticks,
        "ticktext": [text(tick) for tick in ticks],
    }


def clock(seconds: float) -> str:
    """A round time: 5 ms, 10 s, 1 min, 2 h."""
    size, unit = next(((size, unit) for size, unit in UNITS if seconds >= size), UNITS[-1])
    return f"{seconds / size:g} {unit}"


def doublings(values: Iterable[float], title: str) -> dict[str, Any]:
    """A logarithmic axis of lengths in tokens, which come in powers of two."""
    seen = [value for value in values if value > 0] or [1.0]
    low, high = min(seen), max(seen)
    ticks = [2**power for power in range(31) if low <= 2**power <= high]
    ticks = ticks[:: -(-len(ticks) // 5) or 1]
    return {
        "type": "log",
        "title": title,
        "tickvals": ticks,
        "ticktext": [f"{tick:,}" for tick in ticks],
    }
