"""Runs beside one another: a table with a column for each."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.table import Table

from kvsim.export import names
from kvsim.report.forms import count, milliseconds, number, percent, short
from kvsim.report.parts import LATENCIES, PARTS

if TYPE_CHECKING:
    from kvsim.analysis.summary import Summary, Value
    from kvsim.runs import RunResult


def print_comparison(results: Seq[RunResult], console: Console) -> None:
    """One table with a column for each run; the best value of a row is marked with ``*``."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    for name in names(results):
        table.add_column(name, justify="right", overflow="fold")
    for row in _ROWS:
        table.add_row(row.label, *row.cells([result.summary for result in results]))
    console.print(table, highlight=False)
    console.print("* best of the row", style="dim", highlight=False)


class Row(NamedTuple):
    """A line of the comparison."""

    label: str
    key: str
    show: Callable[[Value], str]
    better: Callable[[Seq[float]], float] | None = None
    """``min`` or ``max``; None if neither is better."""

    def cells(self, summaries: Seq[Summary]) -> list[str]:
        """The value of each run, the best marked."""
        values = [_at(summary, self.key) for summary in summaries]
        numbers = [value for value in values if isinstance(value, int | float)]
        best = None
        if self.better is not None and len(set(numbers)) > 1:
            best = self.better(numbers)
        return [
            self.show(value) + ("  " if best is None or value != best else " *") for value in values
        ]


def _at(summary: Summary, key: str) -> Value:
    """The value of a key; ``kv_memory.used`` is a share of the pool."""
    name, _, part = key.partition(".")
    value = summary.get(name)
    if not isinstance(value, dict):
        return value
    total = sum(value.values())
    return value.get(part, 0.0) / total if total else None


_ROWS = (
    Row("completed", "completed", count, max),
    Row("rejected", "num_rejected", count, min),
    Row("duration, s", "duration", number, min),
    Row("requests/s", "request_throughput", number, max),
    Row("goodput, requests/s", "request_goodput", number, max),
    Row("output tokens/s", "output_throughput", number, max),
    *(
        Row(f"{label} {statistic}, ms", f"{statistic}_{metric}_ms", milliseconds, min)
        for label, metric in LATENCIES[:4]
        for statistic in ("mean", "p50", "p99")
    ),
    Row("queue mean, ms", "mean_queue_time_ms", milliseconds, min),
    Row("KV usage mean", "mean_kv_cache_usage", percent),
    Row("KV usage peak", "peak_kv_cache_usage", percent),
    *(Row(f"  {part.label}", f"kv_memory.{part.key}", percent) for part in PARTS),
    Row("prefix hit rate", "prefix_cache_hit_rate", percent, max),
    Row("preemptions", "num_preemptions", count, min),
    Row("recomputed tokens", "recomputed_tokens", short, min),
    Row("evicted blocks", "num_evictions", count),
    Row("overloaded", "overloaded", lambda value: "yes" if value else "no"),
    Row("verdict", "verdict", str),
    Row("times", "cost_model", str),
)
