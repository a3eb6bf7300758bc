"""Times that do not fall: the non-decreasing sequences nearest to what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, log


def isotonic(values: Sequence[float]) -> list[float]:
    """The non-decreasing sequence nearest to ``values`` by squares (pool adjacent violators).

    numpy has none: with the largest value so far (``numpy.maximum.accumulate``) in its place one held-out
    shape in twenty of the H200 is off by more than 9.6 %, not 8.7, as one slow point slows all larger ones.
    """
    means: list[float] = []
    counts: list[int] = []
    for value in values:
        mean, count = value, 1
        while means and means[-1] > mean:
            before = counts.pop()
            mean = (means.pop() * before + mean * count) / (before + count)
            count += before
        means.append(mean)
        counts.append(count)
    return [mean for mean, count in zip(means, counts, strict=True) for _ in range(count)]


def rising(times: Sequence[float]) -> list[float]:
    """The non-decreasing sequence nearest to ``times`` by ratios."""
    return [exp(each) for each in isotonic([log(time) if time else -inf for time in times])]
