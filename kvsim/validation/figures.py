"""What was measured and what was predicted, drawn: one strip of panels a run."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import NullFormatter

from kvsim.plots import BLUE, GREEN, ORANGE
from kvsim.validation.measured import RunReport
from kvsim.validation.rows import kind

STYLE = {
    "font.size": 8.5,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.edgecolor": "#8a8a8a",
    "grid.color": "#e4e4e4",
}
KINDS = {"decode": BLUE, "mixed": ORANGE, "prefill": GREEN}
WIDE = 30
"""Ratio of the longest to the shortest time from which their axis is logarithmic."""
MOST_POINTS = 1500
"""Iterations that a scatter shows at most: every n-th of more."""


def strip(report: RunReport) -> bytes:
    """A PNG: distributions of latencies, step times, and the state over time."""
    panels: list[Callable[[Axes, RunReport], None]] = [
        lambda axes, run: distribution(axes, run, "ttft", "time to first token, s"),
        lambda axes, run: distribution(axes, run, "tpot", "time per output token, s"),
        scatter if report.steps else queue,
        usage if any(tick.kv_usage is not None for tick in report.run.ticks) else running,
    ]
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]  # it wants its own long Literal
        layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.06)
        figure = Figure(figsize=(12.4, 2.7), layout=layout)
        for axes, draw in zip(figure.subplots(1, len(panels)), panels, strict=True):
            draw(axes, report)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=70, metadata={"Software": "kvsim"})
    return buffer.getvalue()


def distribution(axes: Axes, report: RunReport, name: str, label: str) -> None:
    """Share of the requests with more than a token within a time."""
    rows = sorted(row for row, one in report.run.outcomes.items() if one.output > 1)
    if not rows:
        return
    sides = [report.run.outcomes[row] for row in rows], [report.seen.requests[row] for row in rows]
    for outcomes, style in zip(sides, styles(), strict=True):
        found = np.sort([getattr(outcome, name) for outcome in outcomes])
        axes.step(found, np.arange(1, len(found) + 1) / len(found), where="post", **style)  # type: ignore[arg-type]
    if found[-1] > WIDE * found[0]:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(label)
    axes.set_ylabel("share of requests")
    axes.grid(visible=True)
    axes.legend(frameon=False, loc="upper left")


def styles() -> tuple[dict[str, str], dict[str, str]]:
    """How both sides are drawn."""
    return {"color": "#555555", "label": "measured"}, {
        "color": BLUE, "linestyle": "--", "label": "predicted"
    }  # fmt: skip


def scatter(axes: Axes, report: RunReport) -> None:
    """Modelled over recorded time of iterations."""
    for name, colour in KINDS.items():
        steps = [step for step in report.steps if kind(step.shape) == name]
        steps = steps[:: -(-len(steps) // MOST_POINTS) or 1]
        if steps:
            recorded = [1e3 * step.measured for step in steps]
            modelled = [1e3 * step.predicted for step in steps]
            axes.plot(recorded, modelled, ".", markersize=2.5, color=colour, label=name)
    span = [1e3 * edge(s.measured for s in report.steps) for edge in (min, max)]
    axes.plot(span, span, color="#8a8a8a", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("iteration, recorded ms")
    axes.set_ylabel("modelled ms")
    axes.legend(frameon=False, loc="upper left", markerscale=3)


def usage(axes: Axes, report: RunReport) -> None:
    """Share of the KV memory that sequences hold, over time."""
    ticks = [tick for tick in report.run.ticks if tick.kv_usage is not None]
    over_time(
        axes,
        [(tick.time, 100 * (tick.kv_usage or 0.0)) for tick in ticks],
        [(one.end, 100 * one.kv_usage) for one in report.seen.stretches],
        "KV memory held, %",
    )


def queue(axes: Axes, report: RunReport) -> None:
    """Requests that wait, over time."""
    over_time(
        axes,
        [(tick.time, tick.waiting) for tick in report.run.ticks],
        [(one.end, one.waiting) for one in report.seen.stretches],
        "requests waiting",
    )


def running(axes: Axes, report: RunReport) -> None:
    """Requests that run, over time."""
    over_time(
        axes,
        [(tick.time, tick.running) for tick in report.run.ticks],
        [(one.end, one.running * report.run.setup.replicas) for one in report.seen.stretches],
        "requests running",
    )


def over_time(
    axes: Axes,
    theirs: Sequence[tuple[float, float]],
    ours: Sequence[tuple[float, float]],
    label: str,
) -> None:
    """Two curves by seconds."""
    for side, style in zip((theirs, ours), styles(), strict=True):
        times, found = [time for time, _ in side], [value for _, value in side]
        axes.plot(times, found, linewidth=0.9, **style)  # type: ignore[arg-type]
    axes.set_xlabel("seconds")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True)
