"""Draws a chart onto axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from kvsim.plots import BLUE, GREEN, ORANGE, PALETTE
from kvsim.reporting.charts import Axis, Bars, Colour, Curves, Line, Mark, Stack, Tornado
from kvsim.reporting.forms import shown
from kvsim.reporting.typeset import INK, QUIET

LETTERS = 112
"""Of a legend that fit beside one another over a whole figure."""
NEAR = (0.12, 0.055)
"""Shares of a panel within which two notes would cover one another."""
EDGE = 0.85
"""Share of a panel beyond which a note stands to the left of its point."""
LONGEST = 32
"""Letters of a name beside a bar, or of a curve."""
COLOURS: dict[Colour, str] = {
    "blue": BLUE,
    "orange": ORANGE,
    "green": GREEN,
    "sky": PALETTE["cached"],
    "pink": PALETTE["external_fragmentation"],
    "amber": PALETTE["reserved"],
    "grey": QUIET,
    "pale": PALETTE["free"],
}


def draw_curves(axes: Axes, chart: Curves) -> None:
    """Lines and marks."""
    for line in chart.lines:
        draw_line(axes, line)
    for mark in chart.marks:
        draw_mark(axes, mark)
    _scaled(axes, chart)
    _noted(axes, chart.lines)
    axes.grid()
    axes.set_axisbelow(True)
    _above(axes)


def draw_line(axes: Axes, line: Line) -> None:
    """Values along an axis."""
    colour = COLOURS[line.colour]
    label = line.label or "_"
    if line.drawn == "area":
        axes.fill_between(line.x, line.y, color=colour, alpha=0.18, linewidth=0)
        axes.plot(line.x, line.y, color=colour, linewidth=1.2, label=label)
    elif line.drawn == "points":
        axes.plot(line.x, line.y, "D", color=colour, markersize=6, label=label)
    else:
        style = {"line": "-", "dashes": "--", "dots": "o-"}[line.drawn]
        axes.plot(line.x, line.y, style, color=colour, linewidth=1.7, markersize=4.5, label=label)


def _noted(axes: Axes, lines: Sequence[Line]) -> None:
    """The notes of points, off their line, where none stands close by already."""
    place = axes.transScale + axes.transLimits
    taken: list[tuple[float, float]] = []
    for line in lines:
        edge = 1 - EDGE if rises(line) else EDGE
        for x, y, note in zip(line.x, line.y, line.notes, strict=False):
            at = place.transform((x, y))
            if all(abs(at[0] - a) > NEAR[0] or abs(at[1] - b) > NEAR[1] for a, b in taken):
                beside, align = ((-6, 4), "right") if at[0] > edge else ((6, 4), "left")
                axes.annotate(
                    note, (x, y), beside, textcoords="offset points", fontsize=8.5, ha=align
                )
                taken.append((at[0], at[1]))


def rises(line: Line) -> bool:
    """Whether more of x goes with more of y, so that the place above and to the right is taken."""
    return len(line.x) > 1 and float(np.cov(line.x, line.y)[0, 1]) > 0


def draw_mark(axes: Axes, mark: Mark) -> None:
    """A limit."""
    line = axes.axvline if mark.along == "x" else axes.axhline
    line(
        mark.at, color=COLOURS[mark.colour], linestyle="--", linewidth=1.2, label=mark.label or "_"
    )


def _scaled(axes: Axes, chart: Curves) -> None:
    for name, axis in (("x", chart.x), ("y", chart.y)):
        _labelled(axes, name, axis)
    _from_zero(axes, chart)


def _labelled(axes: Axes, name: str, axis: Axis) -> None:
    ticks = axes.xaxis if name == "x" else axes.yaxis
    if axis.logarithmic:
        (axes.set_xscale if name == "x" else axes.set_yscale)("log")
        ticks.set_major_locator(LogLocator(10, numticks=9))
        ticks.set_minor_formatter(NullFormatter())
    else:
        ticks.set_major_locator(MaxNLocator(6, integer=axis.form == "count", min_n_ticks=2))
    ticks.set_major_formatter(FuncFormatter(_tick(axis)))
    ticks.set_label_text(axis.label)


def _tick(axis: Axis) -> Callable[[float, object], str]:
    if axis.form in ("share", "fine share"):
        return lambda value, _: f"{value:.3g}%" if value is None else f"{100 * value:.3g}%"
    return lambda value, _: shown(value, axis.form)


def _from_zero(axes: Axes, chart: Curves) -> None:
    if not chart.y.logarithmic:
        highest = max((y for line in chart.lines for y in line.y), default=0.0)
        axes.set_ylim(0, chart.y.most or max(highest * 1.1, 1e-9))
    if any(line.drawn == "area" for line in chart.lines):
        axes.margins(x=0)
    elif not chart.x.logarithmic:
        # Room for the points that lie farthest out, however close together all of them are.
        farthest = max((x for line in chart.lines for x in line.x), default=0.0)
        axes.set_xlim(0, max(farthest * 1.05, axes.get_xlim()[1]))


def draw_stack(axes: Axes, chart: Stack) -> None:
    """Parts on one another, the legend in their order."""
    colours = [COLOURS[part.colour] for part in chart.parts]
    labels = [part.label for part in chart.parts]
    values = [part.values for part in chart.parts]
    axes.stackplot(chart.at, *values, labels=labels, colors=colours, linewidth=0)
    _labelled(axes, "x", chart.x)
    _labelled(axes, "y", chart.y)
    axes.set_xlim(chart.at[0], chart.at[-1])
    axes.set_ylim(0, chart.y.most)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False
    )


def draw_bars(axes: Axes, chart: Bars) -> None:
    """Bars of parts, the first name on top."""
    totals = np.sum([part.values for part in chart.parts], axis=0)
    starts = accumulate((np.asarray(p.values) for p in chart.parts), initial=np.zeros(len(totals)))
    places = range(len(chart.names))
    for part, left in zip(chart.parts, starts, strict=False):
        axes.barh(
            places, part.values, left=left, color=COLOURS[part.colour], height=0.6, label=part.label
        )
    _labelled(axes, "x", chart.axis)
    axes.set_yticks(places, [cut(name) for name in chart.names])
    axes.invert_yaxis()
    most = chart.axis.most or float(totals.max()) or 1.0
    axes.set_xlim(0, most)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= most])
    axes.set_xlim(0, 1.25 * most)
    for place, total, note in zip(places, totals, chart.notes, strict=True):
        axes.annotate(note, (total, place), (5, 0), textcoords="offset points", va="center")
    if len(chart.parts) > 1:
        _above(axes)


def cut(name: str) -> str:
    """A name that leaves room for what it names."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _above(axes: Axes) -> None:
    """A legend over the panel, in as many columns as there is room for."""
    _, labels = axes.get_legend_handles_labels()
    if not labels:
        return
    spec = axes.get_subplotspec()
    room = LETTERS // (spec.get_gridspec().ncols if spec else 1)
    columns = max(1, min(len(labels), room // (max(map(len, labels)) + 6)))
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, frameon=False, borderaxespad=0.2
    )


def draw_tornado(axes: Axes, chart: Tornado) -> None:
    """Swings around what is expected, the first on top."""
    places = range(len(chart.swings))
    for low, colour, label in ((True, BLUE, "less, or faster"), (False, ORANGE, "more, or slower")):
        ends = np.array([swing.low if low else swing.high for swing in chart.swings])
        axes.barh(places, ends - chart.base, left=chart.base, color=colour, height=0.5, label=label)
        for place, end, swing in zip(places, ends, chart.swings, strict=True):
            note = swing.low_note if low else swing.high_note
            left = end < chart.base or (low and end == chart.base)
            offset = (-5, 0) if left else (5, 0)
            axes.annotate(
                note, (end, place), offset, textcoords="offset points", va="center",
                ha="right" if left else "left", fontsize=9,
            )  # fmt: skip
    axes.axvline(chart.base, color=INK, linewidth=1)
    axes.set_yticks(places, [swing.label for swing in chart.swings])
    axes.invert_yaxis()
    _labelled(axes, "x", chart.axis)
    least, most = axes.get_xlim()
    margin = max(0.2 * (most - least), 0.08 * chart.base)
    axes.set_xlim(least - margin, most + margin)
    _above(axes)


DRAWN: dict[type, Callable[[Axes, Any], None]] = {
    Curves: draw_curves,
    Stack: draw_stack,
    Bars: draw_bars,
    Tornado: draw_tornado,
}
