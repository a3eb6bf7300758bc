"""Shows rows of a sweep: as a table, as JSON, as CSV. Nothing depends on who ran what when."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvsim.export import inert
from kvsim.runs import to_json
from kvsim.sweeping.configuration import Configuration, described, shown
from kvsim.sweeping.matrix import Point
from kvsim.sweeping.results import Cell, Row, metric_names

METRICS = {
    "request_throughput": "req/s",
    "request_goodput": "goodput req/s",
    "output_throughput": "output tok/s",
    "p50_ttft_ms": "TTFT p50 ms",
    "p99_ttft_ms": "TTFT p99 ms",
    "p99_tpot_ms": "TPOT p99 ms",
    "peak_kv_cache_usage": "KV peak",
    "prefix_cache_hit_rate": "prefix hits",
    "verdict": "verdict",
}
"""What the table shows, with its titles; a metric that no run has is left out."""
SHARES = {"mean_kv_cache_usage", "peak_kv_cache_usage", "prefix_cache_hit_rate", "busy_fraction"}
SETTING = 9
"""Columns that a setting gets at least, if it needs them."""


def print_matrix(matrix: Sequence[Configuration], console: Console) -> None:
    """A line for each configuration of a sweep that has not run."""
    table, names = _table([made.point for made in matrix])
    for position, made in enumerate(matrix):
        table.add_row(*_settings(position, made.point, names))
    console.print(table, highlight=False)


def print_rows(rows: Sequence[Row], chosen: Sequence[str], console: Console) -> None:
    """A line for each configuration; ``chosen`` metrics come before the usual ones.

    Below, those without a result say why.
    """
    table, names = _table([row.entry.point for row in rows])
    metrics = [name for name in dict.fromkeys([*chosen, *METRICS]) if _is_known(rows, name)]
    for name in metrics:
        title = METRICS.get(name, name.replace("_", " "))
        table.add_column(title, justify="right", min_width=5)
    for row in rows:
        if row.metrics:
            cells = [_cell(name, row.metrics.get(name)) for name in metrics]
            table.add_row(*_settings(row.entry.position, row.entry.point, names), *cells)
    if table.row_count:
        console.print(table, highlight=False)
    for row in rows:
        if not row.metrics:
            console.print(Text(_absence(row)), highlight=False)


def _table(points: Sequence[Point]) -> tuple[Table, list[str]]:
    """A table with columns for the number and the settings, and the settings' names.

    A nested setting goes by its last name if no other has it.
    """
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("#", justify="right")
    names = _varied(points)
    leaves = [name.rpartition(".")[2] for name in names]
    for name, leaf in zip(names, leaves, strict=True):
        title = leaf if leaves.count(leaf) == 1 else name
        widest = max(len(shown(point.get(name, ""))) for point in points)
        width = min(widest, SETTING)
        table.add_column(title.replace("_", " "), overflow="fold", min_width=width)
    return table, names


def _varied(points: Iterable[Point]) -> list[str]:
    return list(dict.fromkeys(name for point in points for name in point))


def _settings(position: int, point: Point, names: Sequence[str]) -> list[Text]:
    return [Text(str(position + 1)), *(Text(shown(point.get(name, "-"))) for name in names)]


def _is_known(rows: Sequence[Row], name: str) -> bool:
    return any(row.metrics.get(name) is not None for row in rows)


def _cell(name: str, value: Cell) -> Text:
    if value is None:
        return Text("-")
    if isinstance(value, bool | str):
        return Text(str(value))
    if name in SHARES:
        return Text(f"{value:.1%}")
    return Text(f"{value:,.0f}" if isinstance(value, int) or value >= 1000 else f"{value:,.4g}")


def _absence(row: Row) -> str:
    entry = row.entry
    why = f": {entry.error}" if entry.error else ""
    return f"{described(entry.position + 1, entry.point)} {entry.status}{why}"


def json_of(rows: Sequence[Row]) -> str:
    """An array of objects: what each configuration sets, and what came of it."""
    return to_json([_object(row) for row in rows]).decode()


def _object(row: Row) -> dict[str, object]:
    entry = row.entry
    return {
        "configuration": entry.position + 1,
        "status": entry.status,
        "error": entry.error,
        "settings": entry.point,
        "scenario": entry.scenario,
        "scenario_hash": entry.key.scenario,
        "trace": entry.trace,
        "trace_sha256": entry.key.trace,
        "metrics": row.metrics or None,
    }


def csv_of(rows: Sequence[Row]) -> str:
    """A row for each configuration; a text that a spreadsheet would compute is quoted."""
    names, metrics = _varied(row.entry.point for row in rows), metric_names(rows)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["configuration", "status", "error", *names, *metrics])
    for row in rows:
        entry = row.entry
        settings = [shown(entry.point.get(name, "")) for name in names]
        values = [row.metrics.get(name) for name in metrics]
        cells = [entry.position + 1, entry.status, entry.error, *settings, *values]
        writer.writerow([inert(cell) for cell in cells])
    return text.getvalue()
