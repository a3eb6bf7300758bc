"""Figures of a measured profile: every table as it was timed, and rates against the card's peaks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from kvsim.catalog import load_gpu
from kvsim.costs.operators import Profile
from kvsim.files import whole_file, written
from kvsim.plots import BLUE, GREEN, ORANGE, PALETTE, STYLE

COLOURS = (
    BLUE,
    ORANGE,
    GREEN,
    *(PALETTE[part] for part in ("external_fragmentation", "reserved", "cached")),
)
COLUMNS = 4
Series = Mapping[str, Any]


def write_profile_plots(profile: Profile, folder: Path) -> list[Path]:
    """Draw ``operators.png`` (all tables) and ``rates.png`` (against the roofline) into a folder."""
    with written(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]  # it wants its own long Literal
        return [
            saved(folder / "operators.png", operators(profile)),
            saved(folder / "rates.png", rates(profile)),
        ]


def saved(path: Path, figure: Figure) -> Path:
    """Write a figure whole or not at all."""
    with whole_file(path) as file:
        figure.savefig(file, format="png", dpi=120, metadata={"Software": "kvsim"})
    return path


def operators(profile: Profile) -> Figure:
    """A panel for each table: microseconds along its last axis, with the band from p10 to p90."""
    names = profile.operators
    rows = -(-len(names) // COLUMNS)
    figure = Figure(figsize=(4.2 * COLUMNS, 3.2 * rows), layout="constrained")
    panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for axes, name in zip(panels, names, strict=False):
        for colour, one in zip(COLOURS, spread_out(profile.series(name)), strict=False):
            axes.plot(one["x"], one["median"], ".-", color=colour, label=label(one), linewidth=1.2)
            axes.fill_between(one["x"], one["p10"], one["p90"], color=colour, alpha=0.25)
        finish(axes, name, profile.axes(name)[-1], "microseconds")
        axes.set_yscale("log")
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    figure.suptitle(f"{profile.gpu}: what was measured, operator by operator")
    return figure


def rates(profile: Profile) -> Figure:
    """Products, decodes and prompts as rates, below the peaks of the data sheet (dashed)."""
    gpu = load_gpu(profile.gpu)
    figure = Figure(figsize=(15, 4.8), layout="constrained")
    panels = figure.subplots(1, 3)
    draw_rates(panels[0], product_rates(profile), gpu.bf16_flops / 1e12)
    finish(panels[0], "products, bf16", "rows", "TFLOP/s")
    draw_rates(panels[1], decode_rates(profile), gpu.bandwidth / 1e12)
    finish(panels[1], "decode attention, bf16, 4 heads a kv head", "context, tokens", "TB/s of KV")
    draw_rates(panels[2], prompt_rates(profile), gpu.bf16_flops / 1e12)
    finish(panels[2], "prompt attention, 32 heads", "new tokens on no past", "TFLOP/s")
    figure.suptitle(f"{profile.gpu}: measured rates, and the peaks of its data sheet")
    return figure


Rates = Iterator[tuple[str, Sequence[float], Sequence[float]]]


def draw_rates(axes: Axes, lines: Rates, peak: float) -> None:
    """Lines of rates and the peak above them."""
    for colour, (name, xs, ys) in zip(COLOURS, lines, strict=False):
        axes.plot(xs, ys, ".-", color=colour, label=name, linewidth=1.2)
    axes.axhline(peak, color="#333333", linestyle="--", linewidth=1, label=f"peak {peak:,.3g}")


def product_rates(profile: Profile) -> Rates:
    """TFLOP/s of products with weights of models, by their rows."""
    table = "gemm_model" if "gemm_model" in profile.operators else "gemm"
    series = [one for one in profile.series(table) if one["at"][0] == "bf16"]
    for one in spread_out(series, 4):
        _, n, k = one["at"]
        yield f"{n} x {k}", one["x"], rate(one, 2 * n * k)


def decode_rates(profile: Profile) -> Rates:
    """TB/s of keys and values read, by context."""
    for one in spread_out(
        [s for s in profile.series("decode_attention") if s["at"][:4] == ["bf16", 16, 128, 4]], 5
    ):
        units = one["at"][-1]
        name = f"{units:,} sequences x kv heads"
        yield name, one["x"], rate(one, 2 * 2 * 128 * units)


def prompt_rates(profile: Profile) -> Rates:
    """TFLOP/s of causal attention by this project's kernel and the library's."""
    for kernel in ("paged", "library"):
        times = {
            one["at"][-1]: one["median"][0]
            for one in profile.series("prefill_attention")
            if one["at"][:4] == [kernel, "bf16", 128, 32] and one["x"][0] == 0
        }
        new = sorted(times)
        yield kernel, new, [4 * 32 * 128 * n * (n + 1) / 2 / times[n] / 1e6 for n in new]


def rate(one: Series, amount: int) -> list[float]:
    """``amount`` times ``x`` over times, in 10^12 a second."""
    return [amount * x / time / 1e6 for x, time in zip(one["x"], one["median"], strict=True)]


def spread_out(series: Sequence[Series], most: int = len(COLOURS)) -> list[Series]:
    """At most ``most`` series, from the first to the last."""
    if len(series) <= most:
        return list(series)
    return [series[round(i * (len(series) - 1) / (most - 1))] for i in range(most)]


def label(one: Series) -> str:
    """The other axes' values."""
    return ", ".join(map(str, one["at"]))


def finish(axes: Axes, title: str, x: str, y: str) -> None:
    """Titles, units and a legend."""
    axes.set_title(title, loc="left", fontsize=10.5)
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())  # those of a single decade would overlap
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True)
    axes.legend(fontsize=7, frameon=False)
