"""``summary.json``: the flat dictionary that a run is known by, under the engine benches' names.

Every key is defined in ``docs/METRICS.md``. A number that does not exist is None, never NaN.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kvsim.analysis.distribution import Distribution
from kvsim.analysis.statistics import RunStatistics
from kvsim.analysis.verdict import Facts, verdict
from kvsim.tables import HELD_PARTS, POOL_PARTS, EngineRecord, SampleTable

Value = str | int | float | bool | None | dict[str, float]
Summary = dict[str, Value]

PERCENTILES = (50, 90, 95, 99)
REPORTED = ("ttft", "tpot", "itl", "e2el", "queue_time", "normalized_latency")


class Deployment(NamedTuple):
    """What a summary says about the deployment itself."""

    block_size: int
    """Slots in a block; 1 for allocators without blocks."""
    evictions: int
    """Cached blocks dropped to make room, on all replicas."""
    cost_model: str
    """Label of the cost model: ``analytic``, ``fixed``, ``measured ...``."""
    swapped_tokens: int = 0
    """Tokens whose KV was copied to the host or back, on all replicas."""
    group_peaks: dict[str, float] | None = None
    """Highest share of a pool that each kind of layers held, where kinds have blocks of their own."""


def summarise(statistics: RunStatistics, engine: EngineRecord, deployment: Deployment) -> Summary:
    """All of ``summary.json`` from what a run has left."""
    memory = _memory(statistics, engine, deployment)
    return {
        **_throughput(statistics),
        **_latency(statistics),
        **_counts(statistics, engine, deployment),
        **memory,
        **_judgement(statistics, engine, memory),
        "cost_model": deployment.cost_model,
        "percentiles": "exact" if _exact(statistics) else "histogram",
        **statistics.tenants.summary(),
        **_groups(deployment),
    }


def _throughput(statistics: RunStatistics) -> Summary:
    duration = statistics.duration
    tokens = statistics.input_tokens + statistics.output_tokens
    good = statistics.good if statistics.slos else None
    return {
        "duration": duration,
        "completed": statistics.completed,
        "total_input_tokens": statistics.input_tokens,
        "total_output_tokens": statistics.output_tokens,
        "request_throughput": _rate(statistics.completed, duration),
        "request_goodput": None if good is None else _rate(good, duration),
        "output_throughput": _rate(statistics.output_tokens, duration),
        "total_token_throughput": _rate(tokens, duration),
    }


def _latency(statistics: RunStatistics) -> Summary:
    summary: Summary = {}
    for name in REPORTED:
        summary |= _milliseconds(name, statistics.latencies[name])
    return summary


def _milliseconds(name: str, distribution: Distribution) -> Summary:
    found = distribution.statistics(PERCENTILES)
    if found is None:
        keys = ("mean", "median", "std", *(f"p{percent}" for percent in PERCENTILES))
        return {f"{key}_{name}_ms": None for key in keys}
    points = {f"p{p}": value for p, value in zip(PERCENTILES, found.percentiles, strict=True)}
    values = {"mean": found.mean, "median": points["p50"], "std": found.std, **points}
    return {f"{key}_{name}_ms": value * 1e3 for key, value in values.items()}


def _counts(statistics: RunStatistics, engine: EngineRecord, deployment: Deployment) -> Summary:
    return {
        "prefix_cache_queries": statistics.input_tokens,
        "prefix_cache_hits": statistics.cached_tokens,
        "prefix_cache_hit_rate": _rate(statistics.cached_tokens, statistics.input_tokens),
        "num_preemptions": statistics.preemptions,
        "num_evictions": deployment.evictions,
        "num_rejected": statistics.rejected,
        "recomputed_tokens": statistics.recomputed_tokens,
        "swapped_tokens": deployment.swapped_tokens,
        "num_iterations": sum(replica.iterations for replica in engine.replicas),
        "num_replicas": len(engine.replicas),
    }


def _memory(statistics: RunStatistics, engine: EngineRecord, deployment: Deployment) -> Summary:
    slots = engine.total_slots
    replicas = len(engine.replicas)
    pool = slots * replicas
    held = (_rate(sum(r.held for r in engine.replicas), statistics.duration)) or 0.0
    peak = max((r.peak_held for r in engine.replicas), default=0)
    return {
        "peak_kv_cache_usage": _rate(peak, slots),
        "mean_kv_cache_usage": _rate(held, pool),
        "kv_saved_by_sharing": _saved(engine),
        "kv_blocks_total": slots // deployment.block_size * replicas,
        "kv_memory": _waterfall(engine, statistics.first_arrival, pool, held),
    }


def _saved(engine: EngineRecord) -> float | None:
    """Share of the slots that running sequences would hold without sharing, and do not."""
    saved = sum(replica.saved for replica in engine.replicas)
    return _rate(saved, saved + sum(replica.held for replica in engine.replicas))


def _waterfall(engine: EngineRecord, start: float, pool: int, held: float) -> dict[str, float]:
    """Mean slots by part: ``held`` is known exactly, samples say how it and the rest divide."""
    sampled = mean_parts(engine.samples, start)
    rest = POOL_PARTS[len(HELD_PARTS) :]
    return _scaled(sampled, HELD_PARTS, "used", held) | _scaled(sampled, rest, "free", pool - held)


def _scaled(
    parts: dict[str, float], names: tuple[str, ...], fallback: str, total: float
) -> dict[str, float]:
    """The named parts in their proportion, scaled to a total; all in one if there are none."""
    whole = sum(parts[name] for name in names)
    if not whole:
        return {name: total if name == fallback else 0.0 for name in names}
    return {name: parts[name] / whole * total for name in names}


def mean_parts(samples: SampleTable, start: float) -> dict[str, float]:
    """Mean slots of each part of the pool since ``start``, summed over the replicas."""
    means = dict.fromkeys(POOL_PARTS, 0.0)
    for replica in samples.by_replica():
        weights = np.diff(np.maximum(replica.time, start), prepend=start)
        for name in POOL_PARTS:
            if weights.any():
                means[name] += float(np.average(getattr(replica, name), weights=weights))
    return means


def _judgement(statistics: RunStatistics, engine: EngineRecord, memory: Summary) -> Summary:
    available = statistics.duration * len(engine.replicas)
    busy = _rate(sum(replica.busy for replica in engine.replicas), available)
    backlog = statistics.backlog()
    mean, peak = memory["mean_kv_cache_usage"], memory["peak_kv_cache_usage"]
    facts = Facts(
        duration=statistics.duration,
        completed=statistics.completed,
        preemptions=statistics.preemptions,
        mean_usage=mean if isinstance(mean, float) else 0.0,
        peak_usage=peak if isinstance(peak, float) else 0.0,
        busy=busy or 0.0,
        backlog=backlog,
    )
    found = verdict(engine, facts)
    return {
        "busy_fraction": busy,
        "overloaded": backlog is not None and backlog.overloaded,
        "queue_delay_growth": None if backlog is None else backlog.growth,
        "verdict": found.name,
        "verdict_evidence": found.evidence,
    }


def _groups(deployment: Deployment) -> Summary:
    peaks = deployment.group_peaks
    return {} if peaks is None else {"peak_kv_cache_usage_by_group": peaks}


def _exact(statistics: RunStatistics) -> bool:
    return all(distribution.exact for distribution in statistics.latencies.values())


def _rate(amount: float, base: float) -> float | None:
    """Their ratio; None where it does not exist."""
    if not base or not math.isfinite(base):
        return None
    return amount / base
