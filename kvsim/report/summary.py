"""The summary of one run, as one compact block."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from kvsim.report.forms import count, milliseconds, number, percent, short
from kvsim.report.parts import LATENCIES, PARTS, Part

if TYPE_CHECKING:
    from kvsim.analysis.summary import Summary
    from kvsim.runs import RunResult

WIDTH = 100
"""Columns that a summary needs at most."""
_BAR = 60
_STATISTICS = ("mean", "p50", "p90", "p95", "p99")


def print_summary(result: RunResult, console: Console) -> None:
    """One compact block about a run, at most :data:`WIDTH` columns wide."""
    summary = result.summary
    memory = _memory(summary, _glyphs(console))
    blocks = (_title(result), _facts(summary), "", _latency_table(summary), "", memory, "")
    console.print(Group(*blocks, _verdict(summary)), highlight=False, width=WIDTH)


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
        ("requests", f"{count(get('completed'))} completed"),
        ("", f"{count(get('num_rejected'))} rejected"),
        ("prefix hits", _hits(summary)),
        ("preemptions", _preemptions(summary)),
        ("evictions", f"{count(get('num_evictions'))} blocks"),
    ]
    rates = [
        ("duration", f"{number(get('duration'))} s"),
        ("throughput", f"{number(get('request_throughput'))} req/s"),
        ("", f"{number(get('output_throughput'))} output tok/s"),
        ("", f"{number(get('total_token_throughput'))} total tok/s"),
        ("goodput", f"{number(goodput)} req/s") if goodput is not None else ("", ""),
    ]
    table = _grid(4)
    for counted, rate in zip(counts, rates, strict=True):
        table.add_row(*counted, *rate)
    return table


def _grid(columns: int) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for column in range(columns):
        label = column % 2 == 0
        table.add_column(style="dim" if label else "", min_width=11 if label else 34)
    return table


def _hits(summary: Summary) -> str:
    return (
        f"{percent(summary.get('prefix_cache_hit_rate'))} of "
        f"{short(summary.get('prefix_cache_queries'))} prompt tokens"
    )


def _preemptions(summary: Summary) -> str:
    if not summary.get("num_preemptions"):
        return "0"
    return (
        f"{count(summary.get('num_preemptions'))} "
        f"({short(summary.get('recomputed_tokens'))} tokens recomputed)"
    )


def _latency_table(summary: Summary) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("latency, ms", min_width=11)
    for statistic in _STATISTICS:
        table.add_column(statistic, justify="right", min_width=11)
    for label, metric in LATENCIES:
        values = (summary.get(f"{statistic}_{metric}_ms") for statistic in _STATISTICS)
        table.add_row(label, *(milliseconds(value) for value in values))
    return table


def _glyphs(console: Console) -> dict[str, Text]:
    """How each part of the pool is drawn on this console."""
    plain = not console.encoding.startswith("utf")
    return {part.key: Text(part.plain if plain else part.glyph, part.style) for part in PARTS}


def _memory(summary: Summary, glyphs: dict[str, Text]) -> Table:
    table = _grid(2)
    blocks = count(summary.get("kv_blocks_total"))
    usage = percent(summary.get("mean_kv_cache_usage"))
    peak = percent(summary.get("peak_kv_cache_usage"))
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
        share = f"{part.label} {percent(memory.get(part.key, 0.0) / total)}"
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
