"""From what a sweep varies to its points: each says what one configuration sets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from kvsim.sweeping.spec import Choice, Columns, Samples, Span, Spec, Value

Point = dict[str, Value]
"""Values by setting."""

DIGITS = 6
"""Significant digits of a number that was drawn."""


def points(spec: Spec) -> Iterator[Point]:
    """Every combination, the last part varying fastest."""
    axes = [[{name: value} for value in values] for name, values in spec.grid.items()]
    axes += [list(together(table)) for table in spec.zip]
    if spec.samples is not None:
        axes.append(list(draws(spec.samples)))
    for parts in product(*axes):
        yield {name: value for part in parts for name, value in part.items()}


def together(table: Columns) -> Iterator[Point]:
    """One point for each place in lists of the same length."""
    for row in zip(*table.values(), strict=True):
        yield dict(zip(table, row, strict=True))


def draws(samples: Samples) -> Iterator[Point]:
    """Random points; a Latin hypercube has one in each of ``count`` slices of every setting."""
    import numpy as np

    rng = np.random.default_rng(samples.seed)
    units = rng.random((samples.count, len(samples.over)))
    if samples.method == "latin-hypercube":
        slices = np.tile(np.arange(samples.count), (len(samples.over), 1))
        units = (rng.permuted(slices, axis=1).T + units) / samples.count
    for row in units.tolist():
        yield {
            name: drawn(values, unit)
            for (name, values), unit in zip(samples.over.items(), row, strict=True)
        }


def drawn(values: Span | Choice, unit: float) -> Value:
    """The value at a place from 0 to 1 (exclusive)."""
    if isinstance(values, Choice):
        return values.among[int(unit * len(values.among))]
    high = values.high + values.whole
    if values.log:
        number = values.low * (high / values.low) ** unit
    else:
        number = values.low + unit * (high - values.low)
    if values.whole:
        return min(int(number // 1), int(values.high))
    return min(max(float(f"{number:.{DIGITS}g}"), values.low), values.high)
