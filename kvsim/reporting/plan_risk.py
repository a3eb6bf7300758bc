"""What a plan risks: how far the recommended fleet is from its limits, and what changes the answer."""

from __future__ import annotations

from kvsim.planning import margins
from kvsim.reporting import plan_charts
from kvsim.reporting.document import Column, Figure, Paragraph, Section, Table, section
from kvsim.reporting.forms import number
from kvsim.reporting.plan_data import Exploration, PlanData

HOLDS = {True: "holds", False: "misses", None: None}


def margin(plan: PlanData, seen: Exploration) -> Section | None:
    """How far the recommended fleet is from each limit, as asked about and in worse worlds."""
    if not seen.objectives:
        return None
    titles, rows = margins.table(seen.objectives)
    rate = plan.trace.request_rate * (1 + plan.trace.headroom)
    said = (
        f"The recommended fleet under the traffic that it is sized for, {number(rate)} requests a second. "
        "A margin is what is left of what is allowed: of a time, or of the requests that may miss."
    )
    columns = tuple(Column(title, "share" if title == "margin" else "text") for title in titles)
    table = Table(columns, tuple(row.cells for row in rows))
    return section("How far from each limit", Paragraph(said), table)


def sensitivity(plan: PlanData, seen: Exploration) -> Section | None:
    """One changed assumption after the other."""
    assert plan.best is not None
    columns = (
        Column("if"),
        Column("GPUs", "count"),
        Column("$/month", "dollars"),
        Column("recommended fleet"),
        Column("cheapest GPU type"),
        Column("the answer"),
    )
    rows = tuple(
        (
            one.case,
            one.gpus,
            one.usd_per_month,
            HOLDS[one.recommended_fleet_holds],
            one.cheapest_gpu or "none",
            "changes" if one.changes_the_answer else "stays",
        )
        for one in seen.sensitivity
    )
    caption = "Monthly cost of the recommended GPU type when one assumption is wrong."
    chart = plan_charts.tornado(plan, plan.best, seen)
    return section("Sensitivity", Figure("sensitivity", caption, chart), Table(columns, rows))
