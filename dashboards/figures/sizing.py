"""Where the memory of a GPU goes, and how many sequences fit."""

from __future__ import annotations

from itertools import cycle

import plotly.graph_objects as go

from ..shown import quantity, size
from ..sizes import Placed, concurrency
from ..text import Words
from .scales import doublings
from .style import (
    BLUE,
    DASHES,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SERIES,
    SKY,
    along,
    down,
    finished,
    titled,
)

PARTS = {
    "weights": ORANGE,
    "activations": PINK,
    "graphs": GREEN,
    "communication": RED,
    "kv_pool": BLUE,
    "left_to_others": "rgba(138,138,138,0.25)",
}


def waterfall_figure(fitting: list[Placed], say: Words) -> go.Figure:
    """The memory of one GPU, for each number of GPUs that share the model."""
    names = [f"TP {each.tensor_parallel}" for each in fitting]
    figure = go.Figure()
    for part, colour in PARTS.items():
        values = [each.plan.waterfall[part] / 1e9 for each in fitting if each.plan]
        figure.add_bar(
            y=names,
            x=values,
            name=say(f"memory_part.{part}"),
            orientation="h",
            marker_color=colour,
            customdata=[size(value * 1e9) for value in values],
            hovertemplate="%{y}: %{customdata}",
        )
    figure.update_layout(barmode="stack", bargap=0.3)
    figure.update_xaxes(title=say("axis.gigabytes"))
    down(figure)
    titled(figure, say("sizing.waterfall"))
    return finished(figure, height=210 + 38 * len(names))


def bytes_figure(found: list[tuple[str, int, int]], say: Words) -> go.Figure:
    """Bytes that one token takes, by the type that keys and values are stored in."""
    figure = go.Figure()
    figure.add_bar(
        x=[name for name, _, _ in found],
        y=[growth / 1e3 for _, growth, _ in found],
        text=[size(growth) for _, growth, _ in found],
        marker_color=SKY,
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{x}: %{text}<extra></extra>",
    )
    tallest = max((growth for _, growth, _ in found), default=1) / 1e3
    figure.update_yaxes(title=say("axis.kilobytes_per_token"), range=[0, 1.15 * tallest])
    figure.update_xaxes(title=say("axis.kv_dtype"))
    titled(figure, say("sizing.bytes"))
    return finished(figure, height=360, legend=False)


def concurrency_figure(fitting: list[Placed], longest: int, chosen: int, say: Words) -> go.Figure:
    """Sequences that fit at once, by their length."""
    figure = go.Figure()
    for each, colour, dash in zip(fitting, SERIES, cycle(DASHES), strict=False):
        assert each.plan is not None
        lengths, counts = concurrency(each.plan, longest)
        figure.add_scatter(
            x=lengths,
            y=counts,
            name=f"TP {each.tensor_parallel}",
            line={"color": colour, "width": 2, "dash": dash},
            customdata=[quantity(count) for count in counts],
            hovertemplate=f"TP {each.tensor_parallel}: %{{customdata}}",
        )
    figure.add_vline(x=chosen, line={"color": GREY, "dash": "dot"})
    figure.add_hline(y=1, line={"color": GREY, "width": 1})
    figure.update_xaxes(doublings(along(figure), say("axis.context")))
    figure.update_yaxes(type="log", title=say("axis.sequences"), dtick=1, tickformat=",~r")
    figure.update_layout(hovermode="x unified")
    titled(figure, say("sizing.concurrency"))
    return finished(figure, height=360)
