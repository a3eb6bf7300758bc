"""Every metric of a run, as measured and as predicted."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from kvsim.validation.measurement import Measurement, Tick
from kvsim.validation.observed import Observed, Outcome, Stretch

if TYPE_CHECKING:
    import numpy as np

    Counts = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]
    Floats = np.ndarray[Any, np.dtype[np.float64]]

PERCENTILES = (50, 90, 99)


class Side(NamedTuple):
    """One side of a comparison: what was measured, or what was predicted."""

    outcomes: list[Outcome]
    gaps: Floats | None
    counts: Floats
    """How often each gap occurs."""
    usages: list[tuple[float, float]]
    """Seconds, and the share of the KV memory that was held during them."""
    peak: float | None
    """Highest share of the KV memory."""
    iterations: int | None
    preemptions: int | None
    waiting: int | None
    """Most requests that waited at once, of an engine whose iterations were not recorded."""


def measured(run: Measurement) -> Side:
    """The side of the real engine, up to the end of the last request with a record.

    A log of iterations that ends before says nothing of the run as a whole.
    """
    import numpy as np

    logged = not run.rows or run.rows[-1].end >= run.end - SLACK
    ticks = [tick for tick in run.ticks if logged and tick.time <= run.end + SLACK]
    known = [tick.kv_usage for tick in ticks if tick.kv_usage is not None]
    return Side(
        [run.outcomes[row] for row in sorted(run.outcomes)],
        run.gaps,
        np.ones(0 if run.gaps is None else len(run.gaps)),
        held_over(ticks) if known else [],
        max(known, default=None),
        len([row for row in run.rows if row.end <= run.end + SLACK and not row.empty])
        if run.rows and logged
        else None,
        run.preemptions if logged else None,
        None if run.rows else max((tick.waiting for tick in ticks), default=None),
    )


SLACK = 0.01
"""Seconds by which the log of an iteration may be away from its last token at the client."""


def held_over(ticks: Iterable[Tick]) -> list[tuple[float, float]]:
    """Shares of the memory between ticks while the engine is busy."""
    return [
        (after.time - before.time, after.kv_usage or 0.0)
        for before, after in pairwise(ticks)
        if before.running
    ]


def predicted(run: Measurement, seen: Observed) -> Side:
    """The simulated side, up to the end of the same requests."""
    outcomes = [seen.outcome(row) for row in sorted(run.outcomes)]
    end = max(outcome.submit + outcome.e2e for outcome in outcomes)
    stretches = [stretch for stretch in seen.stretches if stretch.start < end]
    gaps, counts = gaps_of(run, seen, end)
    return Side(
        outcomes,
        gaps if counts.any() else None,
        counts,
        [(stretch.end - stretch.start, stretch.kv_usage) for stretch in stretches],
        max(stretch.kv_usage for stretch in stretches),
        sum(stretch.steps for stretch in stretches),
        stretches[-1].preemptions,
        max(stretch.waiting for stretch in stretches),
    )


def gaps_of(run: Measurement, seen: Observed, end: float) -> tuple[Floats, Floats]:
    """Seconds between tokens of the recorded requests until ``end``, and how often."""
    import numpy as np

    busy = [one for one in seen.stretches if one.decodes and one.end <= end + SLACK]
    torn = [gap for gap, when in seen.torn if when <= end + SLACK]
    gaps = [(one.end - one.start) / one.steps for one in busy] + torn
    decodes = np.array([one.decodes for one in busy], int)
    if len(run.outcomes) < len(run.requests):
        decodes = np.minimum(decodes, decoding(run, seen, busy))
    counts = decodes * np.array([one.steps for one in busy], int)
    return np.array(gaps), np.append(counts, np.ones(len(torn)))


def decoding(run: Measurement, seen: Observed, busy: Seq[Stretch]) -> Counts:
    """How many of the recorded requests are between their first and their last token."""
    import numpy as np

    outcomes = [seen.requests[row] for row in run.outcomes]
    begun = np.sort([one.submit + one.ttft for one in outcomes])
    ended = np.sort([one.submit + one.e2e for one in outcomes])
    middles = [(one.start + one.end) / 2 for one in busy]
    return np.searchsorted(begun, middles) - np.searchsorted(ended, middles)


def values(side: Side) -> dict[str, float]:
    """All metrics that a side has, seconds and shares."""
    table = latencies(side.outcomes)
    if side.gaps is not None:
        for percent in (50, 99):
            table[f"itl_p{percent}"] = weighted(side.gaps, side.counts, percent)
    first = min(outcome.submit for outcome in side.outcomes)
    duration = max(outcome.submit + outcome.e2e for outcome in side.outcomes) - first
    table["output_throughput"] = sum(outcome.output for outcome in side.outcomes) / duration
    table["duration"] = duration
    if side.usages and side.peak is not None:
        table["peak_kv_usage"] = side.peak
        table["mean_kv_usage"] = mean(side.usages)
    cached = [outcome.cached for outcome in side.outcomes if outcome.cached is not None]
    if len(cached) == len(side.outcomes):
        table["cached_tokens"] = sum(cached)
    if side.waiting is not None:
        table["max_waiting"] = side.waiting
    if side.iterations is not None:
        table["iterations"] = side.iterations
    if side.preemptions is not None:
        table["preemptions"] = side.preemptions
    return table


def latencies(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """TTFT, TPOT (of answers longer than a token) and E2E, seconds: mean and percentiles."""
    import numpy as np

    every = list(outcomes)
    longer = [outcome for outcome in every if outcome.output > 1]
    table = {}
    for name, those in (("ttft", every), ("tpot", longer), ("e2e", every)):
        if not those:
            continue
        found = np.array([getattr(outcome, name) for outcome in those])
        table[f"{name}_mean"] = float(found.mean())
        for percent in PERCENTILES:
            table[f"{name}_p{percent}"] = float(np.percentile(found, percent))
    return table


def mean(weighed: Seq[tuple[float, float]]) -> float:
    """Mean of values, each weighed by its seconds."""
    return sum(span * value for span, value in weighed) / sum(span for span, _ in weighed)


def weighted(found: Floats, counts: Floats, percent: float) -> float:
    """Percentile of values that occur several times each."""
    import numpy as np

    order = np.argsort(found)
    share = np.cumsum(counts[order]) / counts.sum()
    return float(found[order][np.searchsorted(share, percent / 100)])
