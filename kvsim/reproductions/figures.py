"""Draws what a reproduction found; beside :mod:`kvsim.plots` an importer of matplotlib."""

from __future__ import annotations

import io

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from kvsim.plots import BLUE, GREEN, ORANGE
from kvsim.reproductions.findings import Bars, Lines

COLOURS = (BLUE, ORANGE, "#cc79a7", "#999999", GREEN, "#56b4e9", "#d55e00", "#000000")
MOST_TICKS = 9
"""Places on the x axis that are named each."""
STYLE = {
    "font.size": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.edgecolor": "#8a8a8a",
    "grid.color": "#e4e4e4",
}


def png(chart: Bars | Lines) -> bytes:
    """The chart as a PNG file."""
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]  # it wants its own long Literal
        height = 1.4 + 0.34 * len(chart.labels) if isinstance(chart, Bars) else 4.0
        figure = Figure(figsize=(8.6, height), layout=ConstrainedLayoutEngine())
        axes = figure.subplots()
        if isinstance(chart, Bars):
            draw_bars(axes, chart)
        else:
            draw_lines(axes, chart)
        axes.set_title(chart.title, loc="left", fontsize=11)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110, metadata={"Software": "kvsim"})
    return buffer.getvalue()


def draw_bars(axes: Axes, chart: Bars) -> None:
    """Horizontal stacked bars, from the top in the order of their labels."""
    left = [0.0] * len(chart.labels)
    for colour, (name, values) in zip(COLOURS, chart.parts.items(), strict=False):
        bars = axes.barh(chart.labels, values, left=left, color=colour, label=name, height=0.7)
        texts = [f"{value:.1f}" if value >= 4 else "" for value in values]
        axes.bar_label(bars, texts, label_type="center", color="white", fontsize=8.5)
        left = [start + value for start, value in zip(left, values, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel(chart.unit)
    if len(chart.parts) > 1:
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)


def draw_lines(axes: Axes, chart: Lines) -> None:
    """Curves with their points; the first are the widest, so that none hides another."""
    width = 1.5 + 0.6 * len(chart.curves)
    for colour, (name, points) in zip(COLOURS, chart.curves.items(), strict=False):
        width -= 0.6
        x, y = zip(*points, strict=True)
        axes.plot(x, y, "o-", color=colour, label=name, linewidth=width, markersize=2 + width)
    if chart.log:
        axes.set_xscale("log", base=2)
    places = sorted({x for points in chart.curves.values() for x, _ in points})
    if len(places) <= MOST_TICKS:
        axes.set_xticks(places, [f"{x:,g}" for x in places])
        axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    axes.grid()
    axes.set_axisbelow(True)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
