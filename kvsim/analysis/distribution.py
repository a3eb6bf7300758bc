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

EXACT_LIMIT = 1 << 20
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
        self.exact = True

    def add(self, values: Floats, counts: Ints | None = None) -> None:
        """Add values, each once or as often as ``counts`` says."""
        if counts is None:
            counts = np.broadcast_to(np.int64(1), values.shape)
        if not len(values):
            return
        self._values.append(values)
        self._counts.append(counts)
        self._entries += len(values)
        if self._entries > self._limit or not self.exact:
            self._fold()

    def _fold(self) -> None:
        """Replace the values by the buckets they fall into."""
        self.exact = False
        values, counts = self._pairs()
        buckets, position = np.unique(_bucket(values), return_inverse=True)
        summed = np.zeros(len(buckets), dtype=np.int64)
        np.add.at(summed, position, counts)
        self._values, self._counts = [_middle(buckets)], [summed]
        self._entries = len(buckets)

    def _pairs(self) -> tuple[Floats, Ints]:
        if not self._values:
            return np.empty(0), np.empty(0, dtype=np.int64)
        return np.concatenate(self._values), np.concatenate(self._counts)

    def statistics(self, percentiles: Seq[float]) -> Statistics | None:
        """Mean, population standard deviation and percentiles; None of an empty distribution."""
        values, counts = self._pairs()
        if not len(values):
            return None
        order = np.argsort(values)
        values, counts = values[order], counts[order]
        mean = float(np.average(values, weights=counts))
        variance = float(np.average((values - mean) ** 2, weights=counts))
        points = [_percentile(values, np.cumsum(counts), percent) for percent in percentiles]
        return Statistics(mean, math.sqrt(variance), points)


def _percentile(values: Floats, cumulated: Ints, percent: float) -> float:
    """The percentile of sorted values that each stand for several: numpy's linear interpolation."""
    last = int(cumulated[-1]) - 1
    rank = percent / 100 * last
    below = math.floor(rank)
    places = np.searchsorted(cumulated, [below, min(below + 1, last)], side="right")
    low, high = values[places]
    return float(low + (high - low) * (rank - below))


def _bucket(values: Floats) -> Ints:
    # The bits of positive floats are ordered like the numbers themselves.
    return np.ascontiguousarray(values, dtype=np.float64).view(np.int64) >> _DROPPED_BITS


def _middle(buckets: Ints) -> Floats:
    return ((buckets << _DROPPED_BITS) + (1 << (_DROPPED_BITS - 1))).view(np.float64)
