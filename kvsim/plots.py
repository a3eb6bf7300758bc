"""Figures of a run as PNG files: memory, batch, queue and latency.

The only importer of matplotlib; figures are drawn without a display and without pyplot's state.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from kvsim.analysis.latency import latencies
from kvsim.analysis.timeseries import grid, resample
from kvsim.errors import ConfigError
from kvsim.files import whole_file, written
from kvsim.report import PARTS, subtitle

if TYPE_CHECKING:
    from kvsim.runs import RunResult
    from kvsim.tables import Floats

PALETTE = {
    "used": "#0072b2",
    "internal_fragmentation": "#d55e00",
    "reserved": "#e69f00",
    "external_fragmentation": "#cc79a7",
    "cached": "#56b4e9",
    "free": "#ececec",
}
"""Okabe and Ito's colours, which stay apart for colour-blind readers."""
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
_INK, _QUIET = "#333333", "#8a8a8a"
_POINTS = 400
_CURVE_POINTS = 1_000
STYLE = {
    "font.size": 10.5,
    "axes.edgecolor": _QUIET,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


class Series(NamedTuple):
    """The samples of a run on one grid, in the unit of time that suits its length."""

    edges: Floats
    """One more than there are values."""
    columns: dict[str, Floats]
    unit: str
    replicas: int

    @property
    def middles(self) -> Floats:
        """Where a value is drawn."""
        return (self.edges[:-1] + self.edges[1:]) / 2


def write_plots(result: RunResult, folder: Path) -> list[Path]:
    """Draw ``kv_memory.png``, ``batch_size.png``, ``queue.png`` and ``latency.png`` into a folder."""
    if not len(result.requests.served()):
        raise ConfigError(f"run {result.name!r} completed no request: there is nothing to draw")
    series = _series(result)
    with written(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return [
        _save(
            folder / "kv_memory.png", result, 1, lambda axes: _draw_memory(axes[0], result, series)
        ),
        _save(folder / "batch_size.png", result, 2, lambda axes: _draw_batch(axes, series)),
        _save(folder / "queue.png", result, 2, lambda axes: _draw_queue(axes, series)),
        _save(folder / "latency.png", result, 1, lambda axes: _draw_latency(axes[0], result)),
    ]


def _series(result: RunResult) -> Series:
    samples = result.samples
    edges = grid(samples, float(result.requests.arrival.min()), _POINTS)
    columns = resample(samples, edges)
    span = edges[-1] - edges[0]
    unit, seconds = next(
        (unit, seconds)
        for unit, seconds in (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))
        if span >= 3 * seconds or unit == "seconds"
    )
    return Series(edges / seconds, columns, unit, len(set(samples.replica.tolist())))


def _save(path: Path, result: RunResult, panels: int, draw: Callable[[list[Axes]], str]) -> Path:
    """Draw one figure; ``draw`` fills its panels, top to bottom, and returns the title."""
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]  # it wants its own long Literal
        figure = Figure(figsize=(9.6, 5.4), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08))
        axes = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
        title = draw(list(axes))
        axes[0].set_title(f"{title}\n", loc="left", fontsize=14, fontweight="bold")
        axes[0].annotate(
            f"{result.name}: {subtitle(result)}",
            xy=(0, 1),
            xycoords="axes fraction",
            xytext=(0, 7),
            textcoords="offset points",
            color=_QUIET,
        )
        figure.align_ylabels()
        with whole_file(path) as file:
            figure.savefig(file, format="png", dpi=140, metadata={"Software": "kvsim"})
    return path


def _draw_memory(axes: Axes, result: RunResult, series: Series) -> str:
    pool = sum(series.columns[part.key] for part in PARTS)
    shares = [series.columns[part.key] / pool for part in PARTS]
    colours = [PALETTE[part.key] for part in PARTS]
    labels = [f"{label}  {share:.1%}" for label, share in _mean_shares(result).items()]
    axes.stackplot(series.middles, *shares, labels=labels, colors=colours, linewidth=0)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("share of the KV pool")
    _time_axis(axes, series)
    handles, _ = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False
    )
    return "KV cache memory over time"


def _mean_shares(result: RunResult) -> dict[str, float]:
    memory = result.summary["kv_memory"]
    assert isinstance(memory, dict)
    total = sum(memory.values())
    return {part.label: memory[part.key] / total for part in PARTS}


def _draw_batch(axes: list[Axes], series: Series) -> str:
    for axis, column, colour, label in zip(
        axes,
        ("batch", "batch_tokens"),
        (BLUE, GREEN),
        ("sequences\nper iteration", "tokens\nper iteration"),
        strict=True,
    ):
        _area(axis, series, series.columns[column] / series.replicas, colour, label)
    _time_axis(axes[-1], series)
    return "Batch size over time" + (", mean of the replicas" if series.replicas > 1 else "")


def _draw_queue(axes: list[Axes], series: Series) -> str:
    _area(axes[0], series, series.columns["waiting"], ORANGE, "requests\nwaiting")
    _area(axes[1], series, series.columns["running"], BLUE, "requests\nrunning")
    _time_axis(axes[1], series)
    return "Requests in the system over time" + (
        ", sum of the replicas" if series.replicas > 1 else ""
    )


def _area(axes: Axes, series: Series, values: Floats, colour: str, label: str) -> None:
    axes.fill_between(series.middles, values, color=colour, alpha=0.18, linewidth=0)
    axes.plot(series.middles, values, color=colour, linewidth=1.3)
    axes.set_ylim(0, max(1.0, float(values.max())) * 1.08)
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_ylabel(label)
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def _time_axis(axes: Axes, series: Series) -> None:
    axes.set_xlim(series.middles[0], series.middles[-1])
    axes.set_xlabel(f"time since the start of the trace ({series.unit})")


def _draw_latency(axes: Axes, result: RunResult) -> str:
    measured = latencies(result.requests.served())
    shown = (
        ("tpot", "time per output token (TPOT)", GREEN, "-."),
        ("ttft", "time to first token (TTFT)", ORANGE, "-"),
        ("e2el", "end to end (E2E)", BLUE, "--"),
    )
    for name, label, colour, dashes in shown:
        values = np.sort(measured[name][~np.isnan(measured[name])])
        if len(values):
            _curve(axes, values, label, colour, dashes)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(_duration))
    axes.set_xlabel("latency (logarithmic)")
    axes.set_ylim(0, 1.005)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("share of requests at or below")
    axes.grid()
    axes.set_axisbelow(True)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, labelspacing=1.2)
    return "Latency of requests"


def _curve(axes: Axes, values: Floats, label: str, colour: str, dashes: str) -> None:
    """The distribution function of sorted values, its median and 99th percentile marked."""
    ranks = np.linspace(0, 1, min(_CURVE_POINTS, max(2, len(values))))
    marks = [0.5, 0.99]
    at = np.quantile(values, marks)
    label = f"{label}\np50 {_duration(at[0])}, p99 {_duration(at[1])}"
    axes.plot(np.quantile(values, ranks), ranks, dashes, color=colour, linewidth=1.8, label=label)
    axes.plot(at, marks, "o", color=colour, markersize=4.5)


def _duration(seconds: float, _: object = None) -> str:
    """A time with the unit that suits it."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{seconds / size:,.3g} {unit}"
    return f"{seconds:.3g} s"
