"""What figures need of a table of requests, small however many requests there were."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvsim.analysis.latency import LATENCIES, latencies
from kvsim.tables import RequestTable

if TYPE_CHECKING:
    from kvsim.tables import Floats, Ints

CURVE_POINTS = 401
SLOWEST = 200
"""Requests that are kept whole."""


class Band(NamedTuple):
    """A latency of requests by the length of their prompts; one entry for each class of lengths."""

    least: Ints
    """Shortest prompt of the class, tokens; a class ends below twice that."""
    requests: Ints
    p50: Floats
    """Seconds."""
    p99: Floats


class Digest(NamedTuple):
    """The served requests of a run."""

    requests: int
    start: float
    """First arrival, seconds."""
    ranks: Floats
    """Shares of requests, from 0 to 1, at which curves are known."""
    curves: dict[str, Floats]
    """Quantiles by latency, seconds; without those that no request has."""
    bands: dict[str, Band]
    slowest: RequestTable
    """By end-to-end latency, the slowest first."""


def digest(table: RequestTable) -> Digest:
    """The digest of a run's requests, in one pass over each latency."""
    served = table.served()
    measured = latencies(served)
    ranks = np.linspace(0.0, 1.0, CURVE_POINTS)
    curves, bands = {}, {}
    for name in LATENCIES:
        known = ~np.isnan(measured[name])
        if known.any():
            curves[name] = np.quantile(measured[name][known], ranks)
            bands[name] = band(served.prompt_tokens[known], measured[name][known])
    start = float(table.arrival.min()) if len(table) else 0.0
    return Digest(len(served), start, ranks, curves, bands, slowest(served, measured["e2el"]))


def band(lengths: Ints, values: Floats) -> Band:
    """Median and 99th percentile of values in classes of lengths that double."""
    classes = np.log2(np.maximum(lengths, 1)).astype(np.int64)
    order = np.argsort(classes, kind="stable")
    found, first = np.unique(classes[order], return_index=True)
    groups = np.split(values[order], first[1:])
    quantiles = np.array([np.quantile(group, (0.5, 0.99)) for group in groups])
    sizes = np.array([len(group) for group in groups])
    return Band(2**found, sizes, quantiles[:, 0], quantiles[:, 1])


def slowest(served: RequestTable, values: Floats, count: int = SLOWEST) -> RequestTable:
    """The rows with the largest values, the largest first; equals by their place in the trace."""
    chosen = np.arange(len(values))
    if len(values) > count:
        chosen = np.argpartition(values, -count)[-count:]
    order = chosen[np.lexsort((served.row[chosen], -values[chosen]))]
    return served.take(order)
