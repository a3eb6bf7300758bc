"""The table of runs: one row each, the columns that decide."""

from __future__ import annotations

from collections.abc import Mapping

from kvsim.runs import RunResult

from .money import RunCost
from .settings import setting, size_of
from .shown import number

Cell = str | float | None
COLUMNS: dict[str, str | None] = {
    "run": None,
    "model": None,
    "gpu": None,
    "gpus": "%d",
    "allocator": None,
    "scheduler": None,
    "kv_cache_dtype": None,
    "completed": "%d",
    "used": "percent",
    "wasted": "percent",
    "prefix_cache_hit_rate": "percent",
    "p50_ttft_ms": "%.1f",
    "p99_ttft_ms": "%.1f",
    "p50_tpot_ms": "%.1f",
    "p99_tpot_ms": "%.1f",
    "p99_e2el_ms": "%.0f",
    "request_throughput": "%.3g",
    "request_goodput": "%.3g",
    "output_throughput": "%.0f",
    "usd_per_hour": "$%.2f",
    "usd_per_million": "$%.3f",
    "num_preemptions": "%d",
    "num_evictions": "%d",
    "num_rejected": "%d",
    "verdict": None,
    "cost_model": None,
    "price": None,
}
"""Columns, and how their numbers are written; None for text."""
WASTED = ("internal_fragmentation", "reserved", "external_fragmentation")


def rows(
    runs: Mapping[str, RunResult], costs: Mapping[str, RunCost | None]
) -> list[dict[str, Cell]]:
    """A row for each run."""
    return [{"run": name, **row(run, costs.get(name))} for name, run in runs.items()]


def row(run: RunResult, cost: RunCost | None) -> dict[str, Cell]:
    """The cells of a run; None for what a partial run does not say."""
    cells: dict[str, Cell] = {
        name: text_or_number(run.summary.get(name)) for name in COLUMNS if name != "run"
    }
    cells |= {name: setting(run, name) for name in ("model", "gpu", "allocator", "scheduler")}
    cells["kv_cache_dtype"] = setting(run, "kv_cache_dtype")
    replicas, per_replica = size_of(run)
    cells["gpus"] = float(replicas * per_replica) or None
    memory = run.summary.get("kv_memory")
    total = sum(memory.values()) if isinstance(memory, dict) else 0.0
    if isinstance(memory, dict) and total:
        cells["used"] = memory.get("used", 0.0) / total
        cells["wasted"] = sum(memory.get(part, 0.0) for part in WASTED) / total
    if cost is not None:
        cells["usd_per_hour"] = cost.usd_per_hour
        cells["usd_per_million"] = cost.units.per_million_output_tokens
        cells["price"] = cost.source
    return cells


def text_or_number(value: object) -> Cell:
    """A cell that a table can show."""
    return value if isinstance(value, str) else number(value)
