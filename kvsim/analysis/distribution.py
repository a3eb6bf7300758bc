"""A weighted distribution of positive numbers: exact while small, then a histogram.

Up to :data:`EXACT_LIMIT` entries every statistic is exact. Beyond it each value is moved to the middle
of its bucket: buckets are the numbers that share the exponent and the first ten bits of the
mantissa, so they are at most 0.1 % wide and no value moves by more than 0.05 %. Counts are whole
numbers, so the histogram does not depend on the order in which values came.
"""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from kvsim.tables import Floats, Ints

EXACT_LIMIT = 1 << 18
"""Entries up to which a distribution is exact; METRICS.md states it."""
_DROPPED_BITS = 42
"""Of the 52 bits of a mantissa: ten remain."""


class Statistics(NamedTuple):
    """What is reported of a distribution, in the unit of its values."""

    mean: float
    std: float
    """Of the population, as numpy's default."""
    percentiles: list[float]
    """Linear interpolation, as numpy's default."""


class Distribution:
    """Collects values with counts; ``exact`` says whether statistics are those of the values."""

    def __init__(self, limit: int = EXACT_LIMIT) -> None:
        self._limit = limit
        self._entries = 0
        self._values: list[Floats] = []
        self._counts: list[Ints] = []
        self._single = True
        self.exact = True

    def add(self, values: Floats, counts: Ints | None = None) -> None:
        """Add values, each once or as often as ``counts`` says."""
        if not len(values):
            return
        if counts is None:
            counts = np.broadcast_to(np.int64(1), values.shape)
        else:
            self._single = False
        self._values.append(values)
        self._counts.append(counts)
        self._entries += len(values)
        if self._entries > self._limit or not self.exact:
            self._fold()

    def _fold(self) -> None:
        """Replace the values by the buckets they fall into."""
        self.exact = self._single = False
        buckets, counts = _bucket(self._values[0]), self._counts[0]
        for values, more in zip(self._values[1:], self._counts[1:], strict=True):
            together = np.concatenate((buckets, _bucket(values)))
            buckets, counts = _summed(together, np.concatenate((counts, more)))
        self._values, self._counts = [_middle(buckets)], [counts]
        self._entries = len(buckets)

    def statistics(self, percentiles: Seq[float]) -> Statistics | None:
        """Mean, population standard deviation and percentiles; None of an empty distribution."""
        if not self._values:
            return None
        values = np.concatenate(self._values)
        if self._single:
            values.sort()
            return Statistics(float(values.mean()), float(values.std()), _at(values, percentiles))
        order = np.argsort(values)
        values, counts = values[order], np.concatenate(self._counts)[order]
        mean = float(np.average(values, weights=counts))
        variance = float(np.average((values - mean) ** 2, weights=counts))
        points = _at(values, percentiles, np.cumsum(counts))
        return Statistics(mean, math.sqrt(variance), points)


def _at(values: Floats, percentiles: Seq[float], cumulated: Ints | None = None) -> list[float]:
    """Percentiles of sorted values, which stand for several each: numpy's linear interpolation."""
    last = (len(values) if cumulated is None else int(cumulated[-1])) - 1
    points = []
    for percent in percentiles:
        rank = percent / 100 * last
        below = math.floor(rank)
        places = np.array([below, min(below + 1, last)])
        if cumulated is not None:
            places = np.searchsorted(cumulated, places, side="right")
        low, high = values[places]
        points.append(float(low + (high - low) * (rank - below)))
    return points


def _summed(buckets: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Each bucket once, in order, with the sum of its counts."""
    unique, position = np.unique(buckets, return_inverse=True)
    sums = np.zeros(len(unique), dtype=np.int64)
    np.add.at(sums, position, counts)
    return unique, sums


def _bucket(values: Floats) -> Ints:
    # The bits of positive floats are ordered like the numbers themselves.
    return np.ascontiguousarray(values, dtype=np.float64).view(np.int64) >> _DROPPED_BITS


def _middle(buckets: Ints) -> Floats:
    return ((buckets << _DROPPED_BITS) + (1 << (_DROPPED_BITS - 1))).view(np.float64)
