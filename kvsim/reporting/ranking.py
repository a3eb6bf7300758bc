"""Alternatives in order, and the trade between what a user sees and what a GPU gives."""

from __future__ import annotations

from collections.abc import Sequence

from kvsim.reporting.alternative import Alternative
from kvsim.reporting.charts import Axis, Curves, Line, Panels
from kvsim.reporting.document import Cell, Column, Figure, Table

COLUMNS = (
    Column("alternative"),
    Column("fleet"),
    Column("met"),
    Column("within limits", "fine share"),
    Column("$/month", "dollars"),
    Column("$/1M out", "cents"),
    Column("req/s", "number"),
    Column("tok/s/GPU", "number"),
    Column("tok/s/user", "number"),
    Column("TTFT p99 ms", "ms"),
    Column("TPOT p99 ms", "ms"),
    Column("bottleneck"),
)
MOST_NAMED = 20
"""Points on a figure up to which each gets its name."""


def ranking(alternatives: Sequence[Alternative]) -> Table:
    """A row for each, the best first; columns that say nothing are left out."""
    rows = [_row(one) for one in alternatives]
    kept = [i for i in range(len(COLUMNS)) if any(row[i] is not None for row in rows)]
    return Table(
        tuple(COLUMNS[i] for i in kept),
        tuple(tuple(row[i] for i in kept) for row in rows),
        best=0 if len(rows) > 1 else None,
    )


def _row(one: Alternative) -> tuple[Cell, ...]:
    verdict = one.summary.get("verdict")
    overloaded = ", overloaded" if one.summary.get("overloaded") else ""
    return (
        one.name,
        one.fleet,
        None if one.met is None else "yes" if one.met else "no",
        one.attainment,
        one.bill.usd_per_month if one.bill else None,
        one.costs.per_million_output_tokens,
        one.number("request_throughput"),
        one.output_per_gpu,
        one.speed,
        one.number("p99_ttft_ms"),
        one.number("p99_tpot_ms"),
        None if verdict is None else f"{verdict}{overloaded}",
    )


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Those that no other beats in one number and equals in the other, by the first, larger first."""
    order = sorted(range(len(points)), key=lambda i: points[i], reverse=True)
    kept: list[int] = []
    for i in order:
        if not kept or points[i][1] > points[kept[-1]][1]:
            kept.append(i)
    return kept


def pareto_figure(alternatives: Sequence[Alternative]) -> Figure | None:
    """Speed for a user against output of a GPU and against dollars; of more than one only."""
    speedy = [
        one for one in alternatives if one.speed is not None and one.output_per_gpu is not None
    ]
    if len(speedy) < 2:
        return None
    panels = [_panel(speedy, "output tokens a second and GPU", yields(speedy), sign=1)]
    costs = [one.costs.per_million_output_tokens for one in speedy]
    if all(cost is not None for cost in costs):
        dear = [float(cost or 0) for cost in costs]
        panels.append(_panel(speedy, "dollars per million output tokens", dear, sign=-1))
    caption = (
        "What a user sees against what a GPU gives, and what it costs. On the line: those that no other "
        "beats in both. Orange: the objective is missed."
    )
    return Figure("pareto", caption, Panels(tuple(panels), beside=True, height=3.8))


def yields(alternatives: Sequence[Alternative]) -> list[float]:
    """Output tokens a second and GPU."""
    return [float(one.output_per_gpu or 0) for one in alternatives]


def _panel(some: Sequence[Alternative], label: str, values: Sequence[float], sign: int) -> Curves:
    speeds = [float(one.speed or 0) for one in some]
    best = front([(speed, sign * value) for speed, value in zip(speeds, values, strict=True)])
    lines = [Line("", [speeds[i] for i in best], [values[i] for i in best], "grey", "dashes")]
    for good, colour in ((True, "blue"), (False, "orange")):
        chosen = [i for i, one in enumerate(some) if (one.met is not False) is good]
        notes = tuple(some[i].mark for i in chosen) if len(some) <= MOST_NAMED else ()
        if chosen:
            x, y = [speeds[i] for i in chosen], [values[i] for i in chosen]
            lines.append(Line("", x, y, colour, "points", notes))  # type: ignore[arg-type]
    form = "cents" if sign < 0 else "number"
    x_axis = Axis("tokens a second that a user sees", "number")
    return Curves(x_axis, Axis(label, form), tuple(lines))  # type: ignore[arg-type]
