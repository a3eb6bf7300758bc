"""What a run's manifest says of its scenario; a manifest may be another's or incomplete."""

from __future__ import annotations

from collections.abc import Iterable

from kvsim.runs import RunResult

from .shown import number


def scenario_of(run: RunResult) -> dict[str, object]:
    """The settings of a run; none if its manifest has no such table."""
    found = run.manifest.get("scenario")
    return found if isinstance(found, dict) else {}


def setting(run: RunResult, name: str) -> str | None:
    """One of them as text, a plug-in by its name."""
    value = scenario_of(run).get(name)
    if isinstance(value, dict):
        value = value.get("name")
    return None if value is None else str(value)


def size_of(run: RunResult) -> tuple[int, int]:
    """Replicas, and GPUs of each; 0 for what is not known."""
    counts = []
    for name in ("replicas", "tensor_parallel_size", "pipeline_parallel_size"):
        count = scenario_of(run).get(name)
        counts.append(count if isinstance(count, int) and count > 0 else 0)
    return counts[0], counts[1] * counts[2]


def slos(runs: Iterable[RunResult], metric: str) -> dict[float, list[str]]:
    """The limits on a latency that runs were held to, seconds, with the runs."""
    found: dict[float, list[str]] = {}
    for run in runs:
        limits = scenario_of(run).get("slo")
        limit = number(limits.get(metric)) if isinstance(limits, dict) else None
        if limit:
            found.setdefault(limit, []).append(run.name)
    return found
