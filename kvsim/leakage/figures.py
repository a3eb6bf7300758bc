"""Draws what an observer sees: times to first token of both kinds of probes, and what they tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, PercentFormatter

from kvsim.files import whole_file, written
from kvsim.leakage.observer import SURE
from kvsim.leakage.study import Finding, Leakage, Seen
from kvsim.plots import BLUE, GREEN, ORANGE, STYLE

SHORTEST = 0.01
"""Milliseconds: where the axis of times begins at the earliest."""


def write_figures(found: Leakage, folder: Path) -> list[Path]:
    """Draw ``ttft.png`` (a panel for each defence) and ``advantage.png`` into a folder."""
    with written(folder):
        folder.mkdir(parents=True, exist_ok=True)
    count = len(found.findings)
    return [
        _save(folder / "ttft.png", count, 1.9, lambda panels: draw_times(panels, found)),
        _save(
            folder / "advantage.png", 1, 1.6 + 0.5 * count, lambda p: draw_advantages(p[0], found)
        ),
    ]


def _save(path: Path, rows: int, height: float, draw: Callable[[list[Axes]], str]) -> Path:
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]  # it wants its own long Literal
        size = (9.2, 1.2 + height * rows)
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.06))
        panels = list(figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0])
        title = draw(panels)
        figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        with whole_file(path) as file:
            figure.savefig(file, format="png", dpi=130, metadata={"Software": "kvsim"})
    return path


def draw_times(panels: list[Axes], found: Leakage) -> str:
    """Cumulated shares of both kinds, and the threshold below which the observer says "sent"."""
    for axes, one, seen in zip(panels, found.findings, found.seen, strict=True):
        _draw_pair(axes, one, seen)
    panels[0].legend(frameon=False, loc="lower right", fontsize=9)
    panels[-1].set_xscale("log")
    panels[-1].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    panels[-1].set_xlabel("time to first token as the observer sees it, ms (logarithmic)")
    return f"Probes that repeat {found.tokens:,} tokens of somebody's prompt, and that do not"


def _draw_pair(axes: Axes, one: Finding, seen: Seen) -> None:
    kinds = (
        (seen.repeats, BLUE, 3.2, "somebody sent it"),
        (seen.controls, ORANGE, 1.6, "nobody sent it"),
    )
    for times, colour, width, label in kinds:
        shown = np.maximum(np.sort(times) * 1e3, SHORTEST)
        shares = np.arange(len(shown) + 1) / len(shown)
        steps = np.concatenate((shown[:1], shown))
        axes.step(steps, shares, where="post", color=colour, linewidth=width, label=label)
    axes.axvline(max(one.threshold_ms, SHORTEST), color="#8a8a8a", linestyle=":", linewidth=1)
    axes.set_ylabel("probes")
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(axis="x")
    told = f"{one.defence}: AUC {one.auc:.3f}, advantage {one.advantage:+z.3f}"
    axes.set_title(told, loc="left", fontsize=10.5)


def draw_advantages(axes: Axes, found: Leakage) -> str:
    """What each defence leaves to be told, within its error, beside what all others pay."""
    ones = found.findings
    places = np.arange(len(ones))[::-1]
    sure = [one.advantage > SURE * one.advantage_error for one in ones]
    axes.barh(
        places,
        [one.advantage for one in ones],
        xerr=[SURE * one.advantage_error for one in ones],
        color=[ORANGE if told else GREEN for told in sure],
        error_kw={"ecolor": "#333333", "elinewidth": 1, "capsize": 3},
        height=0.6,
    )
    names = [
        f"{one.defence}\nothers: {one.mean_ttft_ms:,.1f} ms, {one.hit_rate:.1%} hits"
        for one in ones
    ]
    axes.set_yticks(places, names, fontsize=9)
    axes.axvline(0, color="#333333", linewidth=0.8)
    axes.set_xlim(min(-0.3, *(one.advantage - SURE * one.advantage_error for one in ones)), 1.2)
    axes.set_xlabel(
        "advantage (TPR - FPR), ± 1.96 standard errors; green: cannot be told from guessing"
    )
    axes.set_axisbelow(True)
    axes.grid(axis="x")
    return "What the observer can tell, and what all others pay"
