"""Runs side by side."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from kvsim.analysis.digest import Digest
from kvsim.runs import RunResult
from kvsim.tables import POOL_PARTS

from ..money import RunCost
from ..shown import dollars, duration, number, percent
from ..text import Words
from .scales import seconds_axis
from .style import (
    BLUE,
    GREEN,
    GREY,
    HATCHES,
    MEMORY,
    ORANGE,
    SHORTEST,
    along,
    down,
    finished,
    limit_line,
    looks,
    titled,
)

ROW = 26
"""Pixels of a bar."""


def bar_height(count: int) -> int:
    """A height that leaves every bar its name."""
    return max(330, 150 + ROW * count)


def shares(run: RunResult) -> dict[str, float] | None:
    """The parts of the KV pool as shares of it; None if the run does not say."""
    memory = run.summary.get("kv_memory")
    if not isinstance(memory, dict) or not sum(memory.values()):
        return None
    total = sum(memory.values())
    return {part: memory.get(part, 0.0) / total for part in POOL_PARTS}


def memory_figure(runs: Mapping[str, RunResult], say: Words) -> go.Figure:
    """Where the slots of each pool are, on average over the run."""
    known = {name: found for name, run in runs.items() if (found := shares(run))}
    figure = go.Figure()
    for part in POOL_PARTS:
        values = [found[part] for found in known.values()]
        figure.add_bar(
            y=list(known),
            x=values,
            name=say(f"part.{part}"),
            orientation="h",
            marker={"color": MEMORY[part], "pattern": {"shape": HATCHES.get(part, ""), "size": 5}},
            customdata=[percent(value) for value in values],
            hovertemplate="%{y}: %{customdata}",
        )
    figure.update_layout(barmode="stack", bargap=0.25)
    figure.update_xaxes(title=say("axis.share_of_pool"), tickformat=".0%", range=[0, 1])
    down(figure)
    titled(figure, say("compare.memory"))
    return finished(figure, height=bar_height(len(known)) + 30)


def latency_figure(
    digests: Mapping[str, Digest], metric: str, limits: Mapping[float, list[str]], say: Words
) -> go.Figure:
    """Distribution functions of a latency, with the limits (seconds) that runs were held to."""
    figure = go.Figure()
    for name, look in looks(list(digests)).items():
        values = digests[name].curves.get(metric)
        if values is None:
            continue
        figure.add_scatter(
            x=values.clip(SHORTEST),
            y=digests[name].ranks,
            name=name,
            line={**look, "width": 2},
            hovertemplate=f"{name}<br>%{{y:.1%}} ≤ %{{customdata}}<extra></extra>",
            customdata=[duration(value) for value in values.tolist()],
        )
    for limit in limits:
        limit_line(figure, limit, f"SLO {duration(limit)}", GREY)
    title = say("axis.latency_log", name=say(f"metric.{metric}"))
    figure.update_xaxes(seconds_axis(along(figure), title))
    figure.update_yaxes(title=say("axis.share_of_requests"), tickformat=".0%", range=[0, 1.01])
    titled(figure, say("compare.latency"))
    return finished(figure, height=bar_height(len(digests)) + 30, legend=len(digests) <= 12)


def throughput_figure(runs: Mapping[str, RunResult], say: Words) -> go.Figure:
    """Requests served, and served within all objectives."""
    figure = go.Figure()
    for key, colour in (("request_throughput", BLUE), ("request_goodput", GREEN)):
        values = [number(run.summary.get(key)) for run in runs.values()]
        if any(value is not None for value in values):
            figure.add_bar(
                y=list(runs),
                x=values,
                name=say(f"metric.{key}"),
                orientation="h",
                marker_color=colour,
                hovertemplate="%{y}: %{x:.3g}/s",
            )
    figure.update_layout(barmode="group", bargap=0.25)
    figure.update_xaxes(title=say("axis.requests_per_second"))
    down(figure)
    titled(figure, say("compare.throughput"))
    return finished(figure, height=bar_height(len(runs)))


def cost_figure(costs: Mapping[str, RunCost | None], say: Words) -> go.Figure:
    """Dollars for a million output tokens."""
    known = {
        name: found
        for name, cost in costs.items()
        if cost and (found := cost.units.per_million_output_tokens) is not None
    }
    figure = go.Figure()
    figure.add_bar(
        y=list(known),
        x=list(known.values()),
        orientation="h",
        marker_color=ORANGE,
        text=[dollars(value) for value in known.values()],
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{y}: %{text}<extra></extra>",
    )
    figure.update_layout(bargap=0.25)
    widest = max(known.values(), default=1.0)
    figure.update_xaxes(
        title=say("axis.dollars_per_million"), tickprefix="$", range=[0, 1.18 * widest]
    )
    down(figure)
    titled(figure, say("compare.cost"))
    return finished(figure, height=bar_height(len(known)), legend=False)
