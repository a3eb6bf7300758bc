"""What all figures have in common: colours that stay apart for everyone, on light and on dark."""

from __future__ import annotations

from itertools import cycle, product
from typing import Any
from unicodedata import east_asian_width

import plotly.graph_objects as go

BLUE, ORANGE, GREEN, RED = "#0072b2", "#e69f00", "#009e73", "#d55e00"
PINK, SKY, GREY = "#cc79a7", "#56b4e9", "#8a8a8a"
SERIES = (BLUE, RED, GREEN, PINK, ORANGE, SKY, GREY)
"""Okabe and Ito's colours, without those that vanish on white or on black."""
DASHES = ("solid", "dash", "dot", "dashdot")
MEMORY = {
    "used": BLUE,
    "internal_fragmentation": RED,
    "reserved": ORANGE,
    "external_fragmentation": PINK,
    "cached": SKY,
    "free": "rgba(138,138,138,0.22)",
}
HATCHES = {"internal_fragmentation": "/", "reserved": ".", "external_fragmentation": "x"}
"""Tell parts apart without colour."""
SHORTEST = 1e-4
"""Seconds below which times are drawn at the edge of a logarithmic axis."""
HALF = 17
"""Columns of text that an entry of the legend has in half the plot of a phone."""
FAINT = "rgba(138,138,138,0.25)"
TICKS, ENTRY = 58, 19
"""Pixels below a plot for its ticks and the axis' title, and of a line of the legend."""
CONFIG: dict[str, Any] = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d"]}


def looks(names: list[str]) -> dict[str, dict[str, str]]:
    """A line for each name: colours first, then dashes."""
    styles = cycle(product(DASHES, SERIES))
    return {
        name: {"color": colour, "dash": dash}
        for name, (dash, colour) in zip(names, styles, strict=False)
    }


def finished(
    figure: go.Figure, *, height: int = 340, legend: bool = True, half: int = HALF
) -> go.Figure:
    """A figure with the common layout: the legend below, so that a narrow screen keeps its plot.

    Entries of the legend are as wide whatever they say, so that its height is known; two stand side by
    side if the longest fits half the plot of a phone, which has room for ``half`` columns of text.
    """
    names = entries(figure) if legend else []
    columns = 2 if all(breadth(name) <= half for name in names) else 1
    rows = -(-len(names) // columns)
    figure.update_layout(
        height=height + ENTRY * max(0, rows - 2),
        margin={"l": 8, "r": 20, "t": 34, "b": TICKS + ENTRY * rows if rows else 8},
        showlegend=legend,
        legend={
            "orientation": "h",
            "traceorder": "normal",
            "yref": "container",
            "yanchor": "bottom",
            "y": 0,
            "xref": "container",
            "x": 0.02,
            "entrywidth": 0.98 / columns,
            "entrywidthmode": "fraction",
            "itemwidth": 30,
            "title": None,
            "font_size": 11,
        },
        hoverlabel={"namelength": -1},
        font={"size": 13},
    )
    figure.update_xaxes(gridcolor=FAINT, zeroline=False, automargin=True)
    figure.update_yaxes(gridcolor=FAINT, zeroline=False, automargin=True)
    return figure


def entries(figure: go.Figure) -> list[str]:
    """The names that the legend shows."""
    shown = (str(trace.name) for trace in figure.data if trace.showlegend is not False)
    return list(dict.fromkeys(shown))


def along(figure: go.Figure) -> list[float]:
    """Everything that is drawn along x."""
    return [float(value) for trace in figure.data for value in trace.x]


def breadth(text: str) -> int:
    """Columns that a text takes; a Chinese character takes two."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def titled(figure: go.Figure, title: str) -> go.Figure:
    """A figure with its title at the left."""
    return figure.update_layout(title={"text": title, "x": 0, "xanchor": "left", "font_size": 15})


def time_unit(seconds: float) -> tuple[float, str]:
    """The unit that suits a span: its seconds, and the key of its name."""
    for size, key in ((3600.0, "unit.hours"), (60.0, "unit.minutes")):
        if seconds >= 3 * size:
            return size, key
    return 1.0, "unit.seconds"


def limit_line(figure: go.Figure, seconds: float, text: str, colour: str) -> None:
    """A vertical line over shares from 0 to 1, which the legend explains."""
    figure.add_scatter(
        x=[seconds, seconds],
        y=[0, 1],
        mode="lines",
        name=text,
        line={"dash": "dash", "width": 1.5, "color": colour},
        hovertemplate=f"{text}<extra></extra>",
    )


def down(figure: go.Figure) -> go.Figure:
    """A figure of bars, one below the other, from the first name on."""
    return figure.update_yaxes(autorange="reversed", showgrid=False)


def bar_below(title: str) -> dict[str, Any]:
    """A scale of colours below the plot, which it leaves its width."""
    return {
        "title": {"text": title, "side": "top", "font": {"size": 12}},
        "orientation": "h",
        "thickness": 10,
        "y": -0.02,
        "yanchor": "top",
    }
