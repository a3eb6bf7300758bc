"""Was the deployment overloaded? Then its latencies say more about the trace's length than about it.

Under overload the backlog grows as long as requests arrive, and so does the delay in the queue: at a
load of rho times the capacity a request that arrives at t waits about ``(rho - 1) * t``. Below
capacity the delay goes up and down but has no trend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from kvsim.tables import Floats

GROWTH_LIMIT = 0.05
"""Seconds of queueing delay gained per second of arrivals: a load of 1.05 times the capacity."""
FEWEST_REQUESTS = 64
_POINTS = 64


class Backlog(NamedTuple):
    """How the delay in the queue developed over the time of arrival."""

    growth: float
    """Seconds of delay gained per second: the median of all slopes (Theil-Sen)."""
    first: float
    """Median delay of the first quarter of arrivals, seconds."""
    last: float
    """Median delay of the last quarter, seconds."""
    overloaded: bool


def backlog(arrival: Floats, delay: Floats, service: Floats) -> Backlog | None:
    """The trend of queueing delays; None for too few requests or when all arrive at once.

    ``service`` is the time from admission to the end. The run counts as overloaded when the delay
    has a trend above :data:`GROWTH_LIMIT`, rises from quarter to quarter, and has in the end grown by
    more than half of the time that a typical request is served.
    """
    if len(arrival) < FEWEST_REQUESTS or arrival.min() == arrival.max():
        return None
    order = np.argsort(arrival, kind="stable")
    arrival, delay = arrival[order], delay[order]
    quarters = [_median(part) for part in np.array_split(delay, 4)]
    growth = _slope(_thinned(arrival), _thinned(delay))
    rising = quarters == sorted(quarters)
    grown = quarters[-1] - quarters[0] > 0.5 * _median(service)
    return Backlog(growth, quarters[0], quarters[-1], growth > GROWTH_LIMIT and rising and grown)


def _thinned(values: Floats) -> Floats:
    """Medians of up to :data:`_POINTS` runs of consecutive values."""
    parts = np.array_split(values, min(_POINTS, len(values)))
    return np.array([_median(part) for part in parts])


def _slope(x: Floats, y: Floats) -> float:
    """Theil-Sen estimator: the median slope of all pairs of points."""
    low, high = np.triu_indices(len(x), 1)
    run = x[high] - x[low]
    apart = run > 0
    if not apart.any():
        return 0.0
    return _median((y[high] - y[low])[apart] / run[apart])


def _median(values: Floats) -> float:
    """As ``np.median``, which imports all of ``numpy.ma`` when it is first called."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
