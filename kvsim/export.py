"""Results for programs: JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING

from kvsim.runs import to_json

if TYPE_CHECKING:
    from kvsim.analysis.summary import Summary
    from kvsim.runs import RunResult

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""Beginnings of a text that a spreadsheet would compute."""


def json_of(results: Seq[RunResult]) -> str:
    """``summary.json`` of a run, or an object of them by name for several."""
    summaries = [result.summary for result in results]
    if len(results) == 1:
        return to_json(summaries[0]).decode()
    return to_json(dict(zip(names(results), summaries, strict=True))).decode()


def csv_of(results: Seq[RunResult]) -> str:
    """A row for each run; the parts of the pool are columns like ``kv_memory.used``."""
    named = zip(names(results), results, strict=True)
    rows = [{"run": name, **_flat(result.summary)} for name, result in named]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: inert(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def inert(cell: object) -> object:
    """The value of a cell; a text that a spreadsheet would compute is quoted."""
    is_formula = isinstance(cell, str) and cell.startswith(FORMULA) and not _is_number(cell)
    return f"'{cell}" if is_formula else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii()


def names(results: Seq[RunResult]) -> list[str]:
    """The names of the runs; where one is taken, with the folder they lie in, or a number."""
    names: list[str] = []
    for result in results:
        inside = [f"{result.path.resolve().parent.name}/{result.name}"] if result.path else []
        numbered = (f"{result.name} ({number})" for number in range(2, len(results) + 2))
        choices = (result.name, *inside, *numbered)
        names.append(next(name for name in choices if name not in names))
    return names


def _flat(summary: Summary) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in summary.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{part}": number for part, number in value.items()}
        else:
            flat[name] = value
    return flat
