"""Results for people: a summary on the console, and a comparison of runs.

Everything here reads ``summary.json`` only, so ``show`` and ``compare`` print the same text for a
run that just ended and for one from last year.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from kvsim.export import names

if TYPE_CHECKING:
    from kvsim.analysis.summary import Summary, Value
    from kvsim.runs import RunResult

WIDTH = 100
"""Columns that a summary needs at most."""
_BAR = 60
_LATENCIES = (
    ("TTFT", "ttft"),
    ("TPOT", "tpot"),
    ("ITL", "itl"),
    ("E2E", "e2el"),
    ("queue", "queue_time"),
)
_STATISTICS = ("mean", "p50", "p90", "p95", "p99")


class Part(NamedTuple):
    """How a part of the KV pool is called and drawn."""

    key: str
    label: str
    glyph: str
    """Tells it apart without colour."""
    plain: str
    """The glyph on a console that has only ASCII."""
    style: str


PARTS = (
    Part("used", "used", "█", "#", "blue"),
    Part("internal_fragmentation", "internal fragmentation", "▓", "x", "red"),
    Part("reserved", "reserved", "▒", "=", "yellow"),
    Part("external_fragmentation", "external fragmentation", "░", "/", "magenta"),
    Part("cached", "cached", "▪", "o", "cyan"),
    Part("free", "free", "·", ".", "dim"),
)


def print_summary(result: RunResult, console: Console) -> None:
    """One compact block about a run, at most :data:`WIDTH` columns wide."""
    summary = result.summary
    memory = _memory(summary, _glyphs(console))
    blocks = (_title(result), _facts(summary), "", _latency_table(summary), "", memory, "")
    console.print(Group(*blocks, _verdict(summary)), highlight=False, width=WIDTH)


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


# The summary of one run.


def subtitle(result: RunResult) -> str:
    """What was run, in one line, and where its times come from."""
    scenario = result.manifest.get("scenario")
    named = scenario if isinstance(scenario, dict) else {}
    parts = [_name(named.get(key)) for key in ("model", "gpu", "allocator", "scheduler")]
    replicas = result.summary.get("num_replicas")
    if isinstance(replicas, int) and replicas > 1:
        parts.append(f"{replicas} replicas")
    parts.append(f"{result.summary.get('cost_model')} times")
    return ", ".join(part for part in parts if part)


def _title(result: RunResult) -> Text:
    title = Text(result.name, style="bold")
    title.append(f"  {subtitle(result)}", style="not bold")
    return title


def _name(setting: object) -> str:
    """A component as it is called: a name, or the name of a table."""
    value = setting.get("name") if isinstance(setting, dict) else setting
    return str(value) if value is not None else ""


def _facts(summary: Summary) -> Table:
    get = summary.get
    goodput = get("request_goodput")
    counts = [
        ("requests", f"{_count(get('completed'))} completed"),
        ("", f"{_count(get('num_rejected'))} rejected"),
        ("prefix hits", _hits(summary)),
        ("preemptions", _preemptions(summary)),
        ("evictions", f"{_count(get('num_evictions'))} blocks"),
    ]
    rates = [
        ("duration", f"{_number(get('duration'))} s"),
        ("throughput", f"{_number(get('request_throughput'))} req/s"),
        ("", f"{_number(get('output_throughput'))} output tok/s"),
        ("", f"{_number(get('total_token_throughput'))} total tok/s"),
        ("goodput", f"{_number(goodput)} req/s") if goodput is not None else ("", ""),
    ]
    table = _grid(4)
    for count, rate in zip(counts, rates, strict=True):
        table.add_row(*count, *rate)
    return table


def _grid(columns: int) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for column in range(columns):
        label = column % 2 == 0
        table.add_column(style="dim" if label else "", min_width=11 if label else 34)
    return table


def _hits(summary: Summary) -> str:
    return (
        f"{_percent(summary.get('prefix_cache_hit_rate'))} of "
        f"{_short(summary.get('prefix_cache_queries'))} prompt tokens"
    )


def _preemptions(summary: Summary) -> str:
    if not summary.get("num_preemptions"):
        return "0"
    return (
        f"{_count(summary.get('num_preemptions'))} "
        f"({_short(summary.get('recomputed_tokens'))} tokens recomputed)"
    )


def _latency_table(summary: Summary) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("latency, ms", min_width=11)
    for statistic in _STATISTICS:
        table.add_column(statistic, justify="right", min_width=11)
    for label, metric in _LATENCIES:
        values = (summary.get(f"{statistic}_{metric}_ms") for statistic in _STATISTICS)
        table.add_row(label, *(_milliseconds(value) for value in values))
    return table


def _glyphs(console: Console) -> dict[str, Text]:
    """How each part of the pool is drawn on this console."""
    plain = not console.encoding.startswith("utf")
    return {part.key: Text(part.plain if plain else part.glyph, part.style) for part in PARTS}


def _memory(summary: Summary, glyphs: dict[str, Text]) -> Table:
    table = _grid(2)
    blocks = _count(summary.get("kv_blocks_total"))
    usage = _percent(summary.get("mean_kv_cache_usage"))
    peak = _percent(summary.get("peak_kv_cache_usage"))
    table.add_row("KV cache", f"{usage} mean usage, {peak} peak, of {blocks} blocks")
    memory = summary.get("kv_memory")
    if isinstance(memory, dict) and any(memory.values()):
        table.add_row("", _bar(memory, glyphs))
        table.add_row("", _legend(memory, glyphs, PARTS[:3]))
        table.add_row("", _legend(memory, glyphs, PARTS[3:]))
    return table


def _bar(memory: dict[str, float], glyphs: dict[str, Text]) -> Text:
    widths = _widths([memory.get(key, 0.0) for key in glyphs])
    return Text().join(
        glyph for glyph, width in zip(glyphs.values(), widths, strict=True) for _ in range(width)
    )


def _widths(amounts: list[float]) -> list[int]:
    """Whole numbers in proportion that sum to the length of the bar (largest remainders)."""
    exact = [amount / sum(amounts) * _BAR for amount in amounts]
    widths = [int(width) for width in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: widths[i] - exact[i])
    for i in by_remainder[: _BAR - sum(widths)]:
        widths[i] += 1
    return widths


def _legend(memory: dict[str, float], glyphs: dict[str, Text], parts: Seq[Part]) -> Text:
    total = sum(memory.values())
    legend = Text()
    for part in parts:
        share = f"{part.label} {_percent(memory.get(part.key, 0.0) / total)}"
        legend += glyphs[part.key] + Text(f" {share:<31}")
    return legend


def _verdict(summary: Summary) -> Table:
    name = str(summary.get("verdict"))
    text = Text(name, style="bold green" if name == "none" else "bold yellow")
    if summary.get("overloaded"):
        text.append(", OVERLOADED", style="bold red")
    table = _grid(2)
    table.add_row("verdict", text)
    table.add_row("", str(summary.get("verdict_evidence")))
    return table


# Comparison.


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
        return [self.show(value) + (" *" if value == best else "  ") for value in values]


def _at(summary: Summary, key: str) -> Value:
    """The value of a key; ``kv_memory.used`` is a share of the pool."""
    name, _, part = key.partition(".")
    value = summary.get(name)
    if not isinstance(value, dict):
        return value
    total = sum(value.values())
    return value.get(part, 0.0) / total if total else None


def _count(value: Value) -> str:
    return f"{value:,}" if isinstance(value, int) else "-"


def _number(value: Value) -> str:
    if not isinstance(value, int | float):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"


def _milliseconds(value: Value) -> str:
    return f"{value:,.2f}" if isinstance(value, int | float) else "-"


def _percent(value: Value) -> str:
    return f"{value:.1%}" if isinstance(value, int | float) else "-"


def _short(value: Value) -> str:
    if not isinstance(value, int | float):
        return "-"
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.1f}{unit}"
    return f"{value:g}"


_ROWS = (
    Row("completed", "completed", _count, max),
    Row("rejected", "num_rejected", _count, min),
    Row("duration, s", "duration", _number, min),
    Row("requests/s", "request_throughput", _number, max),
    Row("goodput, requests/s", "request_goodput", _number, max),
    Row("output tokens/s", "output_throughput", _number, max),
    *(
        Row(f"{label} {statistic}, ms", f"{statistic}_{metric}_ms", _milliseconds, min)
        for label, metric in _LATENCIES[:4]
        for statistic in ("mean", "p50", "p99")
    ),
    Row("queue mean, ms", "mean_queue_time_ms", _milliseconds, min),
    Row("KV usage mean", "mean_kv_cache_usage", _percent),
    Row("KV usage peak", "peak_kv_cache_usage", _percent),
    *(Row(f"  {part.label}", f"kv_memory.{part.key}", _percent) for part in PARTS),
    Row("prefix hit rate", "prefix_cache_hit_rate", _percent, max),
    Row("preemptions", "num_preemptions", _count, min),
    Row("recomputed tokens", "recomputed_tokens", _short, min),
    Row("evicted blocks", "num_evictions", _count),
    Row("overloaded", "overloaded", lambda value: "yes" if value else "no"),
    Row("verdict", "verdict", str),
    Row("times", "cost_model", str),
)
