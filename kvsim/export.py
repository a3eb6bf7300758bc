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
    writer.writerows(rows)
    return text.getvalue()


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
