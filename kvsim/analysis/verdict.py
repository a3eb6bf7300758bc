"""What held the run back, in one word and one sentence."""

from __future__ import annotations

from typing import NamedTuple

from kvsim.analysis.overload import Backlog
from kvsim.tables import EngineRecord

WAITING_LIMIT = 0.10
"""Share of the run with requests waiting below which nothing held them back."""
PREEMPTION_LIMIT = 0.05
"""Preemptions per completed request above which memory is the bottleneck in any case."""


class Pressure(NamedTuple):
    """Shares of a run, over its replicas, in which requests waited, by what they waited for."""

    kv: float
    seats: float
    budget: float

    @classmethod
    def of(cls, engine: EngineRecord, duration: float) -> Pressure:
        """The pressure on all replicas together in a run of ``duration`` seconds."""
        time = duration * len(engine.replicas)
        if not time:
            return cls(0.0, 0.0, 0.0)
        return cls(
            sum(replica.blocked_kv for replica in engine.replicas) / time,
            sum(replica.blocked_seats for replica in engine.replicas) / time,
            sum(replica.blocked_budget for replica in engine.replicas) / time,
        )


class Verdict(NamedTuple):
    """The bottleneck and the numbers that show it."""

    name: str
    """``KV-bound``, ``compute-bound``, ``queue-bound`` or ``none``."""
    evidence: str


class Facts(NamedTuple):
    """What else a verdict is judged by."""

    duration: float
    """Seconds from the first arrival to the last completion."""
    completed: int
    preemptions: int
    mean_usage: float
    peak_usage: float
    busy: float
    """Share of the run in which replicas computed."""
    backlog: Backlog | None


def verdict(engine: EngineRecord, facts: Facts) -> Verdict:
    """Name the bottleneck of a run from where its requests waited."""
    pressure = Pressure.of(engine, facts.duration)
    evidence = [_reason(pressure, engine), _memory(facts)]
    if facts.backlog is not None and facts.backlog.overloaded:
        evidence.append(_growth(facts.backlog))
    return Verdict(_name(pressure, facts), "; ".join(evidence))


def _name(pressure: Pressure, facts: Facts) -> str:
    if facts.preemptions > PREEMPTION_LIMIT * facts.completed:
        return "KV-bound"
    if sum(pressure) < WAITING_LIMIT:
        return "none"
    names = ("KV-bound", "queue-bound", "compute-bound")
    return max(zip(pressure, names, strict=True))[1]


def _reason(pressure: Pressure, engine: EngineRecord) -> str:
    waited = sum(pressure)
    if waited < WAITING_LIMIT:
        return f"requests waited to be admitted in {waited:.0%} of the time"
    limits = engine.limits
    seats = "for a batch to end" if limits.closed_batches else f"{limits.max_num_seqs} seats taken"
    causes = [
        (pressure.kv, "no room in the KV cache"),
        (pressure.seats, seats),
        (pressure.budget, f"token budget of {limits.max_num_batched_tokens} spent"),
    ]
    shares = [f"{share:.0%} {cause}" for share, cause in sorted(causes, reverse=True) if share]
    return f"requests waited to be admitted in {waited:.0%} of the time ({', '.join(shares)})"


def _memory(facts: Facts) -> str:
    return (
        f"KV usage {facts.mean_usage:.0%} mean, {facts.peak_usage:.0%} peak, "
        f"{facts.preemptions} preemptions, engines {facts.busy:.0%} busy"
    )


def _growth(backlog: Backlog) -> str:
    return (
        f"overloaded: queueing delay grew by {backlog.growth:.2g} s per second of arrivals, "
        f"from {_seconds(backlog.first)} to {_seconds(backlog.last)}"
    )


def _seconds(time: float) -> str:
    return f"{time:,.0f} s" if time >= 100 else f"{time:.3g} s"
