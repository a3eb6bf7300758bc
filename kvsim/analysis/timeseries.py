"""Samples of several replicas brought onto one grid of instants, for figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvsim.tables import RUNNING_TOTALS, SAMPLE_COLUMNS, SampleTable

if TYPE_CHECKING:
    from kvsim.tables import Floats

COUNTED = tuple(name for name in SAMPLE_COLUMNS if name not in ("time", "replica"))


def resample(samples: SampleTable, instants: Floats) -> dict[str, Floats]:
    """Means over the intervals that end at ``instants``, summed over the replicas, by column.

    A sample holds since the one before it on its replica, so the integral of a column is piecewise
    linear in time. A replica counts nothing after its last sample, which is the end of the run. Of
    totals that run (:data:`kvsim.tables.RUNNING_TOTALS`), what came about in each interval.
    """
    sums = {name: np.zeros(len(instants) - 1) for name in COUNTED}
    for replica in samples.by_replica():
        time = np.concatenate(([0.0], replica.time))
        spans = np.diff(time)
        for name, total in sums.items():
            values = getattr(replica, name).astype(np.float64)
            if name in RUNNING_TOTALS:
                total += np.diff(np.interp(instants, time, np.concatenate(([0.0], values))))
                continue
            integral = np.concatenate(([0.0], np.cumsum(values * spans)))
            total += np.diff(np.interp(instants, time, integral)) / np.diff(instants)
    return sums


def grid(samples: SampleTable, start: float, points: int) -> Floats:
    """Instants from ``start`` to the last sample that bound ``points`` equal intervals."""
    end = float(samples.time.max()) if len(samples) else start
    return np.linspace(start, end if end > start else start + 1.0, points + 1)
