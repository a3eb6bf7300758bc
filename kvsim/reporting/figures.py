"""Charts as pictures: an SVG of its own, or a part of a page that is drawn already.

Drawn without a display, the same bytes for the same chart.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.transforms import Bbox

from kvsim.reporting.charts import Chart, Panels
from kvsim.reporting.panels import DRAWN
from kvsim.reporting.typeset import INK, QUIET

WIDTH = 10.5
"""Inches of a figure on a page."""
STYLE: Any = {
    "font.size": 10.0,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "legend.edgecolor": "white",
    "legend.framealpha": 0.9,
    "legend.fontsize": 9.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "kvsim",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
}
"""Dollars are dollars: no text is read as a formula."""


APART, MARGIN = 0.25, 0.05
"""Between panels that stand over one another, at least, and beside what is written there: shares of a
panel's height."""


def svg(chart: Chart) -> bytes:
    """The chart as a picture of its own."""
    with mpl.rc_context(STYLE), any_script():
        layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, wspace=0.04, hspace=0.06)
        figure = Figure(figsize=(WIDTH, chart.height), layout=layout)
        draw(figure, chart)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "kvsim"})
    return buffer.getvalue()


@contextmanager
def any_script() -> Iterator[None]:
    """Say nothing about letters that the font lacks: a page shows them in another, paper as boxes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def draw(figure: Figure, chart: Chart) -> GridSpec:
    """Fill a figure; the grid of its panels."""
    panels = chart.panels if isinstance(chart, Panels) else (chart,)
    beside = isinstance(chart, Panels) and chart.beside
    rows, columns = (1, len(panels)) if beside else (len(panels), 1)
    common = not beside and isinstance(chart, Panels) and len({one.x for one in chart.panels}) == 1
    grid = figure.add_gridspec(rows, columns)
    drawn = grid.subplots(squeeze=False, sharex=common).flat
    for place, (axes, panel) in enumerate(zip(drawn, panels, strict=True)):
        DRAWN[type(panel)](axes, panel)
        if common and place < len(panels) - 1:
            axes.set_xlabel("")
    figure.align_ylabels()
    return grid


def place(sheet: Figure, chart: Chart, room: Bbox) -> None:
    """Draw a chart into a part of a page, shares of it, labels included.

    Panels get equal parts; then all of them are moved in until nothing stands over the edge, and apart
    until nothing stands over another.
    """
    before = list(sheet.axes)
    grid = draw(sheet, chart)
    fresh = [axes for axes in sheet.axes if axes not in before]
    left, bottom, right, top = room.extents
    apart = APART
    for _ in range(3):
        grid.update(left=left, bottom=bottom, right=right, top=top, wspace=0.34, hspace=apart)
        for axes in fresh:
            spec = axes.get_subplotspec()
            if spec is not None:
                axes.set_position(spec.get_position(sheet))
        if grid.nrows > 1:
            apart = max(APART, *(_between(sheet, *two) for two in pairwise(fresh)))
        taken = _taken(sheet, fresh)
        left, bottom = left + room.x0 - taken.x0, bottom + room.y0 - taken.y0
        right, top = right + room.x1 - taken.x1, top + room.y1 - taken.y1


def _between(sheet: Figure, upper: Axes, lower: Axes) -> float:
    """What stands below a panel and above the next, as a share of a panel's height."""
    above, below = upper.get_position(), lower.get_position()
    words = above.y0 - _taken(sheet, [upper]).y0 + _taken(sheet, [lower]).y1 - below.y1
    return float(words / above.height) + MARGIN


def _taken(sheet: Figure, some: Sequence[Axes]) -> Bbox:
    renderer = FigureCanvasAgg(sheet).get_renderer()  # type: ignore[no-untyped-call]
    boxes = [box for axes in some if (box := axes.get_tightbbox(renderer)) is not None]
    return Bbox.union(boxes).transformed(sheet.transFigure.inverted())
