"""What users got: latencies against their limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kvsim.analysis.latency import latencies
from kvsim.reporting.charts import CYCLE, Axis, Curves, Line, Mark, Panels
from kvsim.reporting.document import Cell, Column, Figure, Paragraph, Section, Table, section
from kvsim.reporting.forms import fine_share, time

if TYPE_CHECKING:
    from kvsim.reporting.charts import Colour
    from kvsim.runs import RunResult
    from kvsim.tables import Floats

NAMES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "e2el": "end to end",
    "queue_time": "queueing",
    "normalized_latency": "latency per output token",
}
ALWAYS = ("ttft", "tpot", "e2el")
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
RANKS = np.unique(np.concatenate([np.linspace(0, 1, 200), 1 - np.geomspace(1e-4, 0.1, 50)]))
"""At which a distribution function is drawn: more of them where it is nearly 1."""


def latency_of_one(result: RunResult, limits: Mapping[str, float]) -> Section | None:
    """One run: its percentiles, and a curve for each latency."""
    measured = latencies(result.requests.served())
    names = [name for name in NAMES if name in (*ALWAYS, *limits)]
    lines, marks = [], []
    for name, colour in zip(names, CYCLE, strict=False):
        limit = limits.get(name)
        lines += curve(measured[name], label(name, measured[name], limit), colour)
        if limit is not None:
            marks.append(Mark("x", limit, "", colour))
    caption = "Every request of the trace: how many are served within a time. Dashed: the limit."
    return section(
        "Latency",
        percentiles(result.summary, names, limits),
        Figure("latency", caption, panel("latency", lines, marks)) if lines else None,
        evidence(result.summary),
    )


def latency_of_several(
    results: Sequence[tuple[str, RunResult]], limits: Mapping[str, float]
) -> Section | None:
    """Several runs: a panel for each latency, a curve for each run."""
    measured = [(name, latencies(result.requests.served())) for name, result in results]
    shown = [name for name in NAMES if name in (limits or ALWAYS[:2])]
    panels = []
    for latency in shown:
        lines = []
        for (name, values), colour in zip(measured, CYCLE, strict=False):
            lines += curve(
                values[latency], label(name, values[latency], limits.get(latency)), colour
            )
        limit = limits.get(latency)
        marks = [] if limit is None else [Mark("x", limit, f"limit {time(limit)}")]
        panels += [panel(NAMES[latency], lines, marks)] if lines else []
    caption = "Share of requests served within a time, by run. Dashed: the limit."
    height = 3.6 * len(panels)
    return section(
        "Latency",
        Figure("latency", caption, Panels(tuple(panels), height=height)) if panels else None,
    )


def panel(what: str, lines: Sequence[Line], marks: Sequence[Mark]) -> Curves:
    """A panel of distribution functions."""
    return Curves(
        Axis(f"{what} (logarithmic)", "time", logarithmic=True),
        Axis("share of requests", "share", most=1.005),
        tuple(lines),
        tuple(marks),
    )


def curve(values: Floats, label: str, colour: Colour) -> list[Line]:
    """A distribution function; none of no values."""
    known = values[~np.isnan(values)]
    if not len(known):
        return []
    at = np.maximum(np.quantile(known, RANKS), 1e-6)
    return [Line(label, at.tolist(), RANKS.tolist(), colour)]


def label(name: str, values: Floats, limit: float | None) -> str:
    """A latency (or a run) with what it reached."""
    title = NAMES.get(name, name)
    known = values[~np.isnan(values)]
    if not len(known):
        return title
    if limit is None:
        return f"{title}: p50 {time(float(np.median(known)))}"
    return f"{title}: {fine_share(float((known <= limit).mean()))} within {time(limit)}"


def percentiles(
    summary: Mapping[str, object], names: Sequence[str], limits: Mapping[str, float]
) -> Table:
    """Statistics of latencies, milliseconds."""
    rows = [
        (NAMES[name], *(number(summary, f"{s}_{name}_ms") for s in STATISTICS), limit_ms(limits, name))
        for name in names
    ]  # fmt: skip
    columns = (
        Column("milliseconds"),
        *(Column(s, "ms") for s in STATISTICS),
        Column("limit", "ms"),
    )
    return Table(columns, tuple(rows))


def limit_ms(limits: Mapping[str, float], name: str) -> float | None:
    """The limit on a latency, milliseconds."""
    limit = limits.get(name)
    return None if limit is None else limit * 1e3


def number(summary: Mapping[str, object], key: str) -> Cell:
    """A number of a summary."""
    value = summary.get(key)
    return value if isinstance(value, int | float) else None


def evidence(summary: Mapping[str, object]) -> Paragraph | None:
    """What held requests back."""
    text = summary.get("verdict_evidence")
    if not isinstance(text, str) or not text:
        return None
    verdict = summary.get("verdict")
    named = "Nothing held requests back" if verdict == "none" else f"The bottleneck is {verdict}"
    overloaded = " The deployment is OVERLOADED." if summary.get("overloaded") else ""
    return Paragraph(f"{named}: {text}.{overloaded}")
