"""A prefix cache: hits by capacity, reuse, and who shares with whom."""

from __future__ import annotations

from math import log10

import numpy as np
import plotly.graph_objects as go

from kvsim.analysis.reuse import Sharing, Weighted

from ..reuse import Curves, matrix
from ..shown import duration, percent, quantity, size
from ..text import Words
from .scales import FINE, amounts_axis, seconds_axis
from .style import BLUE, GREEN, GREY, RED, SERIES, along, bar_below, down, finished, titled

MOST_POINTS = 400


def hits_figure(found: Curves, token_bytes: int, pool_tokens: int, say: Words) -> go.Figure:
    """Shares of prompt tokens found, by the size of the cache in tokens."""
    figure = go.Figure()
    tokens = [blocks * found.block_size for blocks in found.capacities]
    about = [
        f"{quantity(blocks)} {say('prefix.blocks')}, {size(count * token_bytes)}"
        for blocks, count in zip(found.capacities, tokens, strict=True)
    ]
    lines = {say("prefix.optimum"): (found.optimum, {"color": GREEN, "dash": "dash", "width": 2})}
    for (name, values), colour in zip(
        found.policies.items(), (BLUE, RED, *SERIES[3:]), strict=False
    ):
        lines[name] = (values, {"color": colour, "width": 2.5 if name == "lru" else 1.8})
    for name, (values, line) in lines.items():
        figure.add_scatter(
            x=tokens,
            y=values,
            name=name,
            mode="lines+markers",
            line=line,
            customdata=about,
            hovertemplate=f"{name}: %{{y:.1%}}<br>%{{customdata}}<extra></extra>",
        )
    note = {"text": say("prefix.ceiling", share=percent(found.ceiling)), "font_size": 12}
    figure.add_hline(y=found.ceiling, line={"color": GREY, "dash": "dot"}, annotation=note, annotation_position="top left")  # fmt: skip
    if tokens[0] < pool_tokens < 3 * tokens[-1]:
        figure.add_vline(x=pool_tokens, line={"color": GREY, "dash": "dashdot"})
        figure.add_annotation(
            x=np.log10(pool_tokens), y=0.02, yref="paper", text=say("prefix.pool"), textangle=-90,
            xanchor="right", yanchor="bottom", showarrow=False, font={"size": 11, "color": GREY},
        )  # fmt: skip
    figure.update_xaxes(amounts_axis(along(figure), say("axis.cache_tokens")))
    figure.update_yaxes(title=say("axis.tokens_found"), tickformat=".0%", rangemode="tozero")
    titled(figure, say("prefix.hits"))
    return finished(figure, height=440)


def reuse_figure(found: Weighted, block_size: int, say: Words) -> go.Figure:
    """How much of the reuse is within a distance: what an LRU cache needs for it."""
    x, y = through(found)
    figure = go.Figure(
        go.Scatter(
            x=x * block_size,
            y=y,
            line={"color": BLUE, "width": 2, "shape": "hv"},
            hovertemplate="%{x:,.3s}: %{y:.1%}<extra></extra>",
        )
    )
    figure.update_xaxes(amounts_axis(along(figure), say("axis.reuse_distance")))
    figure.update_yaxes(title=say("axis.share_of_reuse"), tickformat=".0%", range=[0, 1.01])
    titled(figure, say("prefix.distance"))
    return finished(figure, height=360, legend=False)


def times_figure(found: Weighted, say: Words) -> go.Figure:
    """How much of the reuse comes within a time."""
    x, y = through(found)
    x = np.maximum(x, 1e-3)
    figure = go.Figure(
        go.Scatter(
            x=x,
            y=y,
            line={"color": BLUE, "width": 2, "shape": "hv"},
            customdata=[duration(value) for value in x.tolist()],
            hovertemplate="%{customdata}: %{y:.1%}<extra></extra>",
        )
    )
    figure.update_xaxes(seconds_axis(along(figure), say("axis.reuse_time")))
    figure.update_yaxes(title=say("axis.share_of_reuse"), tickformat=".0%", range=[0, 1.01])
    titled(figure, say("prefix.times"))
    return finished(figure, height=360, legend=False)


def through(found: Weighted) -> tuple[np.ndarray, np.ndarray]:
    """A distribution function with no more points than a screen can show."""
    share = np.cumsum(found.blocks) / max(1, int(found.blocks.sum()))
    kept = np.unique(np.linspace(0, len(share) - 1, min(MOST_POINTS, len(share))).astype(int))
    return found.values[kept], share[kept]


def sharing_figure(shared: Sharing, say: Words) -> go.Figure:
    """Blocks that each group (down) left for each group (across)."""
    names, grid = matrix(shared)
    figure = go.Figure(
        go.Heatmap(
            z=np.log10(np.where(grid > 0, grid, np.nan)),
            x=names,
            y=names,
            customdata=grid,
            hovertemplate="%{y} → %{x}: %{customdata:,.0f}<extra></extra>",
            colorscale=[(0, "#cfe3f2"), (1, BLUE)],
            xgap=1,
            ygap=1,
            colorbar={
                **bar_below(say("prefix.blocks")),
                "y": -0.2,
                "tickvals": [log10(tick) for tick in FINE],
                "ticktext": [quantity(tick) for tick in FINE],
            },
        )
    )
    figure.update_xaxes(title=say("axis.used_by"), type="category", showgrid=False)
    down(figure).update_yaxes(title=say("axis.brought_by"), type="category")
    titled(figure, say("prefix.sharing"))
    finished(figure, height=600, legend=False)
    return figure.update_layout(margin={"b": 120})
