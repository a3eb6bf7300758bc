"""One run: over time, request by request, and by the length of prompts."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from kvsim.analysis.digest import Band
from kvsim.analysis.timeseries import resample
from kvsim.tables import POOL_PARTS, RequestTable, SampleTable

from ..shown import duration, percent
from ..text import Words
from .scales import doublings, seconds_axis
from .style import (
    BLUE,
    GREEN,
    GREY,
    MEMORY,
    ORANGE,
    PINK,
    RED,
    SHORTEST,
    SKY,
    along,
    down,
    finished,
    limit_line,
    time_unit,
    titled,
)

POINTS = 400
HEIGHTS = (0.36, 0.16, 0.16, 0.16, 0.16)
PHASES = {"queue": ORANGE, "prefill": GREEN, "stalled": RED, "decode": BLUE}


def timeline_figure(samples: SampleTable, start: float, end: float, say: Words) -> go.Figure:
    """Memory, batch, queue, preemptions and evictions between two instants (seconds)."""
    edges = np.linspace(start, end, POINTS + 1)
    columns = resample(samples, edges)
    seconds, unit = time_unit(end)
    middles = (edges[:-1] + edges[1:]) / 2 / seconds
    replicas = max(1, len(set(samples.replica.tolist())))
    figure = make_subplots(
        rows=5, cols=1, shared_xaxes=True, vertical_spacing=0.035, row_heights=HEIGHTS
    )
    add_memory(figure, middles, columns, say)
    batch = columns["batch"] / replicas
    add_line(figure, 2, middles, batch, say("series.batch"), GREEN)
    figure.data[-1].showlegend = False  # the axis says it
    add_line(figure, 3, middles, columns["running"], say("series.running"), BLUE)
    add_line(figure, 3, middles, columns["waiting"], say("series.waiting"), ORANGE)
    for row, name, colour in ((4, "preemptions", RED), (5, "evictions", PINK)):
        add_counts(figure, row, middles, columns[name], say(f"series.{name}"), colour)
    for row, key in enumerate(("kv_pool", "batch", "requests", "preemptions", "evictions"), 1):
        figure.update_yaxes(title=say(f"axis.{key}"), rangemode="tozero", row=row, col=1)
    figure.update_yaxes(tickformat=".0%", range=[0, 1], row=1, col=1)
    figure.update_xaxes(title=say("axis.time", unit=say(unit)), row=5, col=1)
    figure.update_layout(hovermode="x unified", bargap=0)
    return finished(figure, height=820)


def add_memory(
    figure: go.Figure, middles: np.ndarray, columns: dict[str, np.ndarray], say: Words
) -> None:
    """The parts of the pool, stacked to one."""
    pool = np.maximum(sum(columns[part] for part in POOL_PARTS), 1e-9)
    for part in POOL_PARTS:
        figure.add_scatter(
            x=middles,
            y=columns[part] / pool,
            name=say(f"part.{part}"),
            stackgroup="pool",
            mode="lines",
            line={"width": 0, "color": MEMORY[part]},
            fillcolor=MEMORY[part],
            hovertemplate="%{y:.1%}",
            row=1,
            col=1,
        )


def add_counts(
    figure: go.Figure, row: int, x: np.ndarray, y: np.ndarray, name: str, colour: str
) -> None:
    """Bars in one of the panels, whose axis says what they count."""
    figure.add_bar(
        x=x, y=y, name=name, marker_color=colour, showlegend=False, row=row, col=1,
        hovertemplate="%{y:,.0f}",
    )  # fmt: skip
    if not y.any():
        figure.update_yaxes(tickvals=[0], range=[0, 1], row=row, col=1)


def add_line(
    figure: go.Figure, row: int, x: np.ndarray, y: np.ndarray, name: str, colour: str
) -> None:
    """A line in one of the panels."""
    look = {"color": colour, "width": 1.6}
    figure.add_scatter(x=x, y=y, name=name, line=look, hovertemplate="%{y:,.1f}", row=row, col=1)


def waterfall_figure(requests: RequestTable, say: Words) -> go.Figure:
    """Where the time of each request went, from its arrival on.

    What preemptions cost is drawn before decoding, wherever in the answer it fell.
    """
    names = [f"#{row}" for row in requests.row.tolist()]
    decode = requests.finished - requests.first_token - requests.stalled
    spans = {
        "queue": requests.scheduled - requests.arrival,
        "prefill": requests.first_token - requests.scheduled,
        "stalled": requests.stalled,
        "decode": decode,
    }
    seconds, unit = time_unit(float((requests.finished - requests.arrival).max()))
    tokens = zip(requests.prompt_tokens.tolist(), requests.output_tokens.tolist(), strict=True)
    about = [say("hover.tokens", prompt=f"{a:,}", output=f"{b:,}") for a, b in tokens]
    figure = go.Figure()
    for phase, values in spans.items():
        texts = [duration(value) for value in values.tolist()]
        figure.add_bar(
            y=names,
            x=values / seconds,
            name=say(f"phase.{phase}"),
            orientation="h",
            marker={"color": PHASES[phase], "pattern": {"shape": "/" * (phase == "stalled")}},
            customdata=list(zip(texts, about, strict=True)),
            hovertemplate="%{y}: %{customdata[0]}<br>%{customdata[1]}",
        )
    figure.update_layout(barmode="stack", bargap=0.3)
    figure.update_xaxes(title=say("axis.since_arrival", unit=say(unit)))
    down(figure).update_yaxes(type="category")
    if len(names) > 1:
        figure.update_yaxes(title=say("axis.request"))
    return finished(figure, height=140 + 22 * len(names))


def band_figure(band: Band, metric: str, say: Words) -> go.Figure:
    """Median and 99th percentile of a latency by the length of prompts."""
    lengths = band.least * 2**0.5
    about = [
        say("hover.class", low=f"{low:,}", high=f"{2 * low:,}", count=f"{count:,}")
        for low, count in zip(band.least.tolist(), band.requests.tolist(), strict=True)
    ]
    figure = go.Figure()
    for name, values, colour, fill in (
        ("P50", band.p50, BLUE, None),
        ("P99", band.p99, SKY, "tonexty"),
    ):
        texts = [duration(value) for value in values.tolist()]
        figure.add_scatter(
            x=lengths,
            y=values.clip(SHORTEST),
            name=name,
            mode="lines+markers",
            line={"color": colour, "width": 2},
            fill=fill,
            fillcolor="rgba(86,180,233,0.18)",
            customdata=list(zip(texts, about, strict=True)),
            hovertemplate=f"{name} %{{customdata[0]}}<br>%{{customdata[1]}}<extra></extra>",
        )
    figure.update_xaxes(doublings(lengths.tolist(), say("axis.prompt_tokens")))
    times = np.concatenate([band.p50, band.p99]).clip(SHORTEST)
    figure.update_yaxes(seconds_axis(times.tolist(), say(f"metric.{metric}")))
    titled(figure, say("run.by_length"))
    return finished(figure, height=380)


def curves_figure(
    ranks: np.ndarray, curves: dict[str, np.ndarray], limits: dict[str, float], say: Words
) -> go.Figure:
    """Distribution functions of all latencies of a run, with its objectives."""
    figure = go.Figure()
    looks = {"ttft": ORANGE, "tpot": GREEN, "e2el": BLUE, "queue_time": GREY}
    for name, colour in looks.items():
        if name not in curves:
            continue
        figure.add_scatter(
            x=curves[name].clip(SHORTEST),
            y=ranks,
            name=say(f"metric.{name}"),
            line={"color": colour, "width": 2},
            customdata=[duration(value) for value in curves[name].tolist()],
            hovertemplate=f"{name.upper()}: %{{y:.1%}} ≤ %{{customdata}}<extra></extra>",
        )
        if name in limits:
            met = percent(float((curves[name] <= limits[name]).mean()))
            text = f"SLO {duration(limits[name])}: {met}"
            limit_line(figure, limits[name], text, colour)
    title = say("axis.latency_log", name=say("metric.latency"))
    figure.update_xaxes(seconds_axis(along(figure), title))
    figure.update_yaxes(title=say("axis.share_of_requests"), tickformat=".0%", range=[0, 1.01])
    titled(figure, say("compare.latency"))
    return finished(figure, height=380)
