"""The pool as a picture."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvsim.analysis.prefix_tree import Branch

from ..pool import NOBODY, Film, Frame
from ..shown import quantity
from ..text import Words
from .style import (
    BLUE,
    ENTRY,
    FAINT,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SERIES,
    SKY,
    bar_below,
    finished,
    titled,
)

WIDE = 32
"""Columns of text that an entry of a legend without a plot has."""
COLUMNS = 64
"""Cells of a row of the picture."""
COLOURS = {
    "free": "rgba(138,138,138,0.16)",
    "used": BLUE,
    "shared": GREEN,
    "internal": RED,
    "reserved": ORANGE,
    "external": PINK,
    "cached": SKY,
}
CODES = tuple(COLOURS)
OWNERS = (
    "#1f4e79", "#3f7fbf", "#6a4c93", "#a29bd6", "#7f5539", "#b08968", "#6b7a1e", "#a8b545",
)  # fmt: skip
"""Apart from the colours of what is wasted, shared or cached."""
ALLOCATORS = dict(zip(("contiguous", "buddy", "paged", "radix"), SERIES, strict=False))


def map_figure(frame: Frame, by: str, say: Words) -> go.Figure:
    """Every cell of a pool, by address from left to right and down; by state or by owner."""
    codes = frame.states.astype(np.int64)
    colours = list(COLOURS.values())
    if by == "owner":
        owned = (codes == CODES.index("used")) & (frame.owners != NOBODY)
        codes[owned] = len(colours) + frame.owners[owned] % len(OWNERS)
        colours += OWNERS
    rows = -(-len(codes) // COLUMNS)
    padding = rows * COLUMNS - len(codes)
    grid = np.pad(codes.astype(float), (0, padding), constant_values=np.nan)
    figure = go.Figure(
        go.Heatmap(
            z=grid.reshape(rows, COLUMNS),
            customdata=np.pad(hovers(frame, say), (0, padding)).reshape(rows, COLUMNS),
            hovertemplate="%{customdata}<extra></extra>",
            colorscale=steps(colours),
            zmin=-0.5,
            zmax=len(colours) - 0.5,
            xgap=1,
            ygap=1,
            showscale=False,
        )
    )
    finished(figure, height=22 + 14 * rows, legend=False)
    figure.update_layout(margin={"l": 4, "r": 4, "t": 4, "b": 4})
    figure.update_xaxes(visible=False, fixedrange=True)
    return figure.update_yaxes(visible=False, autorange="reversed", fixedrange=True)


def hovers(frame: Frame, say: Words) -> np.ndarray:
    """What is said of each cell."""
    names = [say(f"state.{code}") for code in CODES]
    request = say("memory.request")
    return np.array(
        [
            names[state] if owner == NOBODY else f"{names[state]}, {request} #{owner}"
            for state, owner in zip(frame.states.tolist(), frame.owners.tolist(), strict=True)
        ]
    )


def steps(colours: list[str]) -> list[tuple[float, str]]:
    """A scale that has each colour for one whole number."""
    count = len(colours)
    return [
        (i / count, colours[i - up])
        for i in range(count + 1)
        for up in (1, 0)
        if 0 <= i - up < count
    ]


def legend_figure(say: Words) -> go.Figure:
    """What the colours mean."""
    figure = go.Figure()
    for code, colour in COLOURS.items():
        figure.add_scatter(
            x=[None],
            y=[None],
            mode="markers",
            marker={"symbol": "square", "size": 13, "color": colour},
            name=say(f"state.{code}"),
        )
    finished(figure, half=WIDE)
    height = ENTRY * -(-len(COLOURS) // 2) + 28
    figure.update_layout(
        height=height,
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        legend={"itemclick": False, "maxheight": 1},
    )
    figure.update_xaxes(visible=False)
    return figure.update_yaxes(visible=False)


def history_figure(films: Mapping[str, Film], time: float, say: Words) -> go.Figure:
    """How many requests each pool serves at once, and how much of it holds tokens of theirs."""
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.08)
    for name, film in films.items():
        times = [frame.time for frame in film.frames]
        line = {"color": ALLOCATORS[name], "width": 2, "shape": "vh"}
        running = [frame.running for frame in film.frames]
        totals = [sum(frame.seen.usage) for frame in film.frames]
        used = [f.seen.usage.used / total for f, total in zip(film.frames, totals, strict=True)]
        figure.add_scatter(
            x=times, y=running, name=name, legendgroup=name, line=line, row=1, col=1,
            hovertemplate="%{y:,d}",
        )  # fmt: skip
        figure.add_scatter(
            x=times, y=used, name=name, legendgroup=name, showlegend=False, line=line, row=2,
            col=1, hovertemplate="%{y:.1%}",
        )  # fmt: skip
    figure.add_vline(x=time, line={"color": GREY, "dash": "dot", "width": 2})
    figure.update_yaxes(title=say("axis.requests_running"), rangemode="tozero", row=1, col=1)
    figure.update_yaxes(
        title=say("axis.tokens_of_pool"), tickformat=".0%", range=[0, 1], row=2, col=1
    )
    figure.update_xaxes(title=say("axis.time", unit=say("unit.seconds")), row=2, col=1)
    figure.update_layout(hovermode="x unified")
    titled(figure, say("memory.history"))
    return finished(figure, height=430)


def tree_figure(branches: list[Branch], say: Words) -> go.Figure:
    """The tree of prefixes: as wide as the requests that asked, as dark as what they found."""
    total = sum(branch.requests for branch in branches if branch.parent is None)
    shares = [branch.hits / max(1, branch.tokens * branch.requests) for branch in branches]
    about = [
        say(
            "hover.branch",
            tokens=f"{branch.tokens:,}",
            requests=f"{branch.requests:,}",
            hits=f"{branch.hits:,}",
            share=f"{share:.0%}",
        )
        for branch, share in zip(branches, shares, strict=True)
    ]
    figure = go.Figure(
        go.Icicle(
            ids=["root", *(str(place) for place in range(len(branches)))],
            labels=[say("memory.all"), *(f"{b.tokens:,}<br>{quantity(b.hits)}" for b in branches)],
            parents=["", *("root" if b.parent is None else str(b.parent) for b in branches)],
            values=[total, *(branch.requests for branch in branches)],
            branchvalues="total",
            customdata=[say("memory.all"), *about],
            hovertemplate="%{customdata}<extra></extra>",
            marker={
                "colors": [0.0, *shares],
                "colorscale": [(0, "#dfe9f1"), (1, BLUE)],
                "cmin": 0,
                "cmax": 1,
                "showscale": True,
                "colorbar": {**bar_below(say("axis.found")), "tickformat": ".0%"},
                "line": {"width": 1, "color": FAINT},
            },
            tiling={"orientation": "v"},
            pathbar={"visible": False},
        )
    )
    titled(figure, say("memory.tree"))
    finished(figure, height=460, legend=False)
    return figure.update_layout(margin={"b": 60})
