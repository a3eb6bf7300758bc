"""What was asked of a deployment: how many requests, how long, when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from kvsim.reporting.charts import Axis, Curves, Line, Panels
from kvsim.reporting.document import Cell, Column, Figure, Paragraph, Section, Table, section

if TYPE_CHECKING:
    from kvsim.tables import Floats, Ints, RequestTable

BINS = 40
"""Of a histogram of lengths."""
INSTANTS = 120
"""Of the rate of arrivals."""


def workload(name: str, sha256: object, table: RequestTable) -> Section | None:
    """The requests of a run, described and drawn."""
    arrivals = np.sort(table.arrival)
    figure = Figure(
        "workload",
        "Lengths of prompts and answers (share of requests at each length, logarithmic), and "
        "arrivals over time.",
        Panels((lengths(table), rate(arrivals)), beside=True, height=3.0),
    )
    return section(
        "Workload",
        Paragraph(sentence(name, arrivals)),
        lengths_table(table),
        figure if len(table) else None,
        Paragraph(f"SHA-256 of the trace: {sha256}") if sha256 else None,
    )


def sentence(name: str, arrivals: Floats) -> str:
    """The trace in a sentence."""
    count = len(arrivals)
    span = float(arrivals[-1] - arrivals[0]) if count else 0.0
    if not span:
        return f"{name}: {count:,} requests, all at once."
    gaps = np.diff(arrivals)
    spread = float(gaps.std() / gaps.mean())
    kind = "burstier than" if spread > 1.1 else "steadier than" if spread < 0.9 else "about as"
    than = "random (Poisson) arrivals" if kind != "about as" else "bursty as random arrivals"
    return (
        f"{name}: {count:,} requests in {span:,.0f} s, {count / span:,.3g} a second; {kind} {than} "
        f"(the gaps between them have a standard deviation of {spread:.2g} times their mean)."
    )


def lengths_table(table: RequestTable) -> Table | None:
    """Tokens of prompts and answers."""
    if not len(table):
        return None
    columns = (
        Column("tokens"),
        *(Column(title, "count") for title in ("mean", "median", "p90", "p99", "longest")),
        Column("in all", "number"),
    )
    return Table(
        columns,
        (
            ("prompt", *statistics(table.prompt_tokens)),
            ("prompt, found in the prefix cache", *statistics(table.cached_tokens)),
            ("answer", *statistics(table.output_tokens)),
        ),
    )


def statistics(values: Ints) -> tuple[Cell, ...]:
    """Mean, percentiles, extreme and sum."""
    points = np.percentile(values, (50, 90, 99)).tolist()
    return float(values.mean()), *points, int(values.max()), int(values.sum())


def lengths(table: RequestTable) -> Curves:
    """Histograms over logarithmic lengths."""
    longest = max(table.prompt_tokens.max(initial=1), table.output_tokens.max(initial=1))
    edges = np.geomspace(1, float(longest) + 1, BINS + 1)
    at = np.sqrt(edges[1:] * edges[:-1]).tolist()
    prompts, answers = histogram(table.prompt_tokens, edges), histogram(table.output_tokens, edges)
    lines = (
        Line("prompts", at, prompts, "blue", "area"),
        Line("answers", at, answers, "orange", "area"),
    )
    return Curves(
        Axis("tokens", "count", logarithmic=True), Axis("share of requests", "share"), lines
    )


def histogram(values: Ints, edges: Floats) -> list[float]:
    """Shares of values in each bin; a value below the first edge counts for the first bin."""
    counts, _ = np.histogram(np.maximum(values, edges[0]), edges)
    return [count / max(1, len(values)) for count in counts.tolist()]


def rate(arrivals: Floats) -> Curves:
    """Arrivals a second, over time."""
    start, end = (float(arrivals[0]), float(arrivals[-1])) if len(arrivals) else (0.0, 0.0)
    edges = np.linspace(start, max(end, start + 1.0), INSTANTS + 1)
    counts, _ = np.histogram(arrivals, edges)
    unit, seconds = scale(edges[-1] - edges[0])
    middles = (edges[1:] + edges[:-1]) / 2 / seconds
    line = Line("", middles.tolist(), (counts / np.diff(edges)).tolist(), "green", "area")
    return Curves(Axis(f"time ({unit})"), Axis("requests a second"), (line,))


def scale(span: float) -> tuple[str, float]:
    """The unit of time that suits a span of seconds, and its length."""
    for unit, seconds in (("hours", 3600.0), ("minutes", 60.0)):
        if span >= 3 * seconds:
            return unit, seconds
    return "seconds", 1.0


def trace_of(manifest: Mapping[str, object]) -> tuple[str, object]:
    """Name and SHA-256 of a run's trace."""
    trace = manifest.get("trace")
    known = trace if isinstance(trace, Mapping) else {}
    return str(known.get("name") or "the trace"), known.get("sha256")
