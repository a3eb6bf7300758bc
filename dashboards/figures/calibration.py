"""Measured kernels against the roofline, and predictions against measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, product

import plotly.graph_objects as go

from kvsim.costs.accuracy import Check

from ..evidence import EngineRun, Timed
from ..shown import percent, quantity
from ..text import Words
from .style import GREY, SERIES, finished, titled

GOOD = 0.10
"""Relative error that the band of the figures shows."""
LONGEST = 34
"""Letters of a run's name in the legend."""
SYMBOLS = ("circle", "diamond", "cross")
AXES = {
    "gemm": "axis.rows",
    "decode_attention": "axis.context_of_each",
    "prefill_attention": "axis.past",
    "copy": "axis.bytes",
}


def curves_figure(series: Sequence[Timed], operator: str, say: Words) -> go.Figure:
    """Times of one operator and the bounds below them."""
    figure = go.Figure()
    for each, colour in zip(series, SERIES, strict=False):
        reached = [bound / time for bound, time in zip(each.bound, each.median, strict=True)]
        figure.add_scatter(
            x=each.x,
            y=each.median,
            name=each.name,
            legendgroup=each.name,
            mode="lines+markers",
            line={"color": colour, "width": 2},
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [high - time for high, time in zip(each.high, each.median, strict=True)],
                "arrayminus": [time - low for low, time in zip(each.low, each.median, strict=True)],
                "thickness": 1,
            },
            customdata=[percent(share, 0) for share in reached],
            hovertemplate=f"{each.name}<br>%{{x:,}}: %{{y:,.4g}} µs, %{{customdata}} "
            f"{say('calibration.of_roofline')}<extra></extra>",
        )
        figure.add_scatter(
            x=each.x,
            y=each.bound,
            name=f"{each.name}, {say('calibration.roofline')}",
            legendgroup=each.name,
            showlegend=False,
            mode="lines",
            line={"color": colour, "dash": "dot", "width": 1.5},
            hovertemplate=f"{say('calibration.roofline')}: %{{y:,.4g}} µs<extra></extra>",
        )
    figure.update_xaxes(type="log", dtick=1, title=say(AXES[operator]))
    figure.update_yaxes(type="log", dtick=1, title=say("axis.microseconds"))
    titled(figure, say("calibration.curves"))
    return finished(figure, height=460)


def accuracy_figure(checks: Sequence[Check], say: Words) -> go.Figure:
    """Times predicted for shapes that were held out, over what they took."""
    figure = go.Figure()
    names = list(dict.fromkeys(check.operator for check in checks))
    for name, marker in zip(names, markers(), strict=False):
        group = [check for check in checks if check.operator == name]
        figure.add_scatter(
            x=[check.measured for check in group],
            y=[check.predicted / check.measured for check in group],
            name=name,
            mode="markers",
            marker={**marker, "size": 6, "opacity": 0.75},
            customdata=[", ".join(map(str, (*check.place, check.x))) for check in group],
            hovertemplate=f"{name} (%{{customdata}})<br>%{{x:,.4g}} µs × %{{y:.3f}}<extra></extra>",
        )
    band(figure)
    figure.update_xaxes(type="log", dtick=1, title=say("axis.measured_us"))
    figure.update_yaxes(title=say("axis.predicted_over_measured"), tickformat=".0%")
    titled(figure, say("calibration.held_out"))
    return finished(figure, height=460)


def markers() -> Iterator[dict[str, str]]:
    """Looks of points: colours first, then symbols."""
    pairs = cycle(product(SYMBOLS, SERIES))
    return ({"color": colour, "symbol": symbol} for symbol, colour in pairs)


def band(figure: go.Figure) -> None:
    """Where a prediction is within ten percent."""
    figure.add_hrect(y0=1 - GOOD, y1=1 + GOOD, fillcolor=GREY, opacity=0.12, line_width=0)
    figure.add_hline(y=1, line={"color": GREY, "width": 1})


def engine_figure(runs: Sequence[EngineRun], say: Words) -> go.Figure:
    """Predictions over measurements, metric by metric, for every engine run."""
    figure = go.Figure()
    for run, marker in zip(runs, markers(), strict=False):
        known = {name: m for name, m in run.metrics.items() if m.error is not None}
        texts = [
            f"{quantity(metric.measured)} → {quantity(metric.predicted)}"
            for metric in known.values()
        ]
        figure.add_scatter(
            x=[1 + metric.error for metric in known.values() if metric.error is not None],
            y=list(known),
            name=run.name if len(run.name) <= LONGEST else f"{run.name[: LONGEST - 1]}…",
            mode="markers",
            marker={**marker, "size": 9, "opacity": 0.85},
            customdata=texts,
            hovertemplate=f"{run.name}<br>%{{y}}: %{{customdata}} (%{{x:.1%}})<extra></extra>",
        )
    figure.add_vrect(x0=1 - GOOD, x1=1 + GOOD, fillcolor=GREY, opacity=0.12, line_width=0)
    figure.add_vline(x=1, line={"color": GREY, "width": 1})
    figure.update_xaxes(title=say("axis.predicted_over_measured"), tickformat=".0%")
    figure.update_yaxes(autorange="reversed")
    metrics = {name for run in runs for name in run.metrics}
    return finished(figure, height=200 + 22 * len(metrics))
