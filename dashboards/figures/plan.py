"""A plan: what each GPU type costs, how fleets grow, and what changes the answer."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from kvsim.reporting.plan_data import Effect, Exploration, PlanData

from ..shown import dollars, percent
from ..text import Words
from .style import BLUE, GREEN, GREY, ORANGE, SERIES, SKY, down, finished, titled

HEIGHT = 400
SHARE = ".2~%"
"""With digits where a narrow range needs them."""
APART = 0.08
"""Share of the plot between two points from which both have room for a text."""


def cost_figure(plan: PlanData, say: Words) -> go.Figure:
    """Dollars a month of the cheapest fleet of each GPU type; the cheapest of all stands out."""
    names = [f"{each.gpus} × {each.gpu}" for each in plan.candidates]
    months = [each.usd_per_month for each in plan.candidates]
    figure = go.Figure(
        go.Bar(
            y=names,
            x=months,
            orientation="h",
            marker_color=[GREEN if each is plan.best else SKY for each in plan.candidates],
            text=[dollars(month) for month in months],
            textposition="outside",
            cliponaxis=False,
            customdata=[each.fleet for each in plan.candidates],
            hovertemplate="%{customdata}: %{text}<extra></extra>",
        )
    )
    widest = max(months, default=1.0)
    figure.update_xaxes(
        title=say("axis.dollars_per_month"), tickprefix="$", range=[0, 1.2 * widest]
    )
    down(figure).update_layout(bargap=1 - min(0.5, 0.17 * len(names)))
    titled(figure, say("plan.costs"))
    return finished(figure, height=max(HEIGHT, 150 + 46 * len(names)), legend=False)


def frontier_figure(plan: PlanData, say: Words) -> go.Figure:
    """Cost against the share of good requests: the fleets found, and what means would have said."""
    figure = go.Figure()
    for each, colour in zip(plan.candidates, SERIES, strict=False):
        add_point(figure, (each.usd_per_month, each.attainment), f"{each.gpus} × {each.gpu}", each.gpu, colour, "circle")  # fmt: skip
    for each, colour in zip(plan.candidates, SERIES, strict=False):
        said = each.by_means
        if said is not None:
            cost = said.gpus * each.usd_per_month / each.gpus
            add_point(figure, (cost, said.attainment), f"{said.gpus} × {each.gpu}", say("plan.means"), colour, "x")  # fmt: skip
    if plan.attainment_needed is not None:
        line = {"color": GREY, "dash": "dash"}
        text = say("plan.needed", share=percent(plan.attainment_needed, 0))
        figure.add_hline(
            y=plan.attainment_needed,
            line=line,
            annotation={"text": text, "font_size": 11},
            annotation_position="bottom left",
        )
    figure.update_xaxes(title=say("axis.dollars_per_month"), tickprefix="$", rangemode="tozero")
    figure.update_yaxes(title=say("axis.attainment"), tickformat=SHARE)
    titled(figure, say("plan.frontier"))
    return finished(figure, height=HEIGHT)


def add_point(
    figure: go.Figure,
    point: tuple[float, float | None],
    fleet: str,
    name: str,
    colour: str,
    symbol: str,
) -> None:
    """A fleet at its cost and quality; a name is listed once."""
    cost, share = point
    figure.add_scatter(
        x=[cost],
        y=[share],
        mode="markers",
        marker={"color": colour, "size": 13, "symbol": symbol},
        name=name,
        showlegend=name not in {trace.name for trace in figure.data},
        hovertemplate=f"{fleet}, {name}<br>{dollars(cost)}<br>{percent(share, 2)}<extra></extra>",
    )


def pareto_figure(plan: PlanData, seen: Exploration, say: Words) -> go.Figure:
    """What a user gets against what a GPU gives, as the load grows."""
    best = plan.best
    gpus = best.gpus if best else 1
    loads = [load for load in seen.loads if None not in (load.speed, load.output_throughput)]
    points = [(load.speed or 0.0, (load.output_throughput or 0.0) / gpus) for load in loads]
    figure = go.Figure()
    figure.add_scatter(
        x=[speed for speed, _ in points],
        y=[per_gpu for _, per_gpu in points],
        mode="lines",
        line={"color": BLUE, "width": 2},
        showlegend=False,
        hoverinfo="skip",
    )
    texts = {
        point: f" {load.request_rate:.2g}/s" if room else ""
        for point, load, room in zip(points, loads, spaced(points), strict=True)
    }
    for met, colour, key in ((True, GREEN, "plan.load_met"), (False, ORANGE, "plan.load_missed")):
        some = [(point, load) for point, load in zip(points, loads, strict=True) if load.met == met]
        figure.add_scatter(
            x=[speed for (speed, _), _ in some],
            y=[per_gpu for (_, per_gpu), _ in some],
            mode="markers+text",
            name=say(key),
            marker={"size": 10, "color": colour},
            text=[texts[point] for point, _ in some],
            textposition="middle right",
            cliponaxis=False,
            customdata=[f"{load.request_rate:.3g}" for _, load in some],
            hovertemplate="%{customdata}/s: %{x:.3g} · %{y:.4g}<extra></extra>",
        )
    fastest = max((speed for speed, _ in points), default=1.0)
    figure.update_xaxes(title=say("axis.user_speed"), range=[0, 1.2 * fastest])
    figure.update_yaxes(title=say("axis.gpu_yield"), rangemode="tozero")
    titled(figure, say("plan.pareto"))
    return finished(figure, height=HEIGHT)


def spaced(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Which points, in their order along a line, have room for a text beside them."""
    wide, high = (
        max((abs(point[axis]) for point in points), default=0.0) or 1.0 for axis in (0, 1)
    )
    found, last = [], None
    for x, y in points:
        room = last is None or max(abs(x - last[0]) / wide, abs(y - last[1]) / high) > APART
        last = (x, y) if room else last
        found.append(room)
    return found


def sizes_figure(plan: PlanData, seen: Exploration, say: Words) -> go.Figure:
    """The share of good requests by the size of the fleet."""
    figure = go.Figure()
    figure.add_scatter(
        x=[each.gpus for each in seen.sizes],
        y=[share(each.attainment, each.attainment_at_most) for each in seen.sizes],
        mode="lines+markers",
        name=say("plan.found"),
        line={"color": BLUE, "width": 2},
        hovertemplate="%{x} GPUs: %{y:.2%}",
    )
    best = plan.best
    if best is not None and best.by_means is not None:
        figure.add_scatter(
            x=[best.by_means.gpus],
            y=[best.by_means.attainment],
            mode="markers",
            name=say("plan.means"),
            marker={"symbol": "x", "size": 13, "color": ORANGE},
            hovertemplate="%{x} GPUs: %{y:.2%}",
        )
    if best is not None:
        figure.add_vline(x=best.gpus, line={"color": GREEN, "width": 1.5})
    if plan.attainment_needed is not None:
        figure.add_hline(y=plan.attainment_needed, line={"color": GREY, "dash": "dash"})
    figure.update_xaxes(title=say("axis.gpus"), rangemode="tozero", tickformat=",d")
    figure.update_yaxes(title=say("axis.attainment"), tickformat=SHARE)
    titled(figure, say("plan.sizes"))
    return finished(figure, height=HEIGHT)


def share(reached: float | None, at_most: float | None) -> float | None:
    """What was reached; of a replay that was stopped as hopeless, the most it could have been."""
    return at_most if reached is None else reached


def sensitivity_figure(plan: PlanData, seen: Exploration, say: Words) -> go.Figure:
    """Dollars a month when an assumption is wrong."""
    base = plan.best.usd_per_month if plan.best else 0.0
    figure = go.Figure()
    for effect in sorted(seen.sensitivity, key=lambda effect: distance(effect, base)):
        cost = base if effect.usd_per_month is None else effect.usd_per_month
        gpus = say("plan.too_many") if effect.gpus is None else f"{effect.gpus} × GPU"
        text = (
            f"{gpus}, {dollars(effect.usd_per_month)}"
            if effect.changes_the_answer
            else say("plan.same")
        )
        if effect.gpus is None:
            text = gpus
        figure.add_bar(
            y=[f"{say.translated(effect.case)}<br>{text}"],
            x=[cost - base],
            base=[base],
            orientation="h",
            marker_color=ORANGE if effect.changes_the_answer else SKY,
            hovertemplate="%{y}<extra></extra>",
        )
    figure.add_vline(x=base, line={"color": GREY})
    figure.update_xaxes(title=say("axis.dollars_per_month"), tickprefix="$")
    figure.update_yaxes(showgrid=False)
    figure.update_layout(barmode="overlay")
    titled(figure, say("plan.sensitivity"))
    return finished(figure, height=130 + 40 * len(seen.sensitivity), legend=False)


def distance(effect: Effect, base: float) -> float:
    """How far a case moves the cost; too many GPUs are farther than anything."""
    return float("inf") if effect.usd_per_month is None else abs(effect.usd_per_month - base)
