"""Figures of a plan as PNG: fleet sizes, loads, sensitivity, alternatives, latency against limits.

Beside :mod:`kvsim.plots` the only importer of matplotlib; drawn without a display.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from kvsim.analysis.latency import latencies
from kvsim.planning.answer import Exploration, Plan
from kvsim.planning.sensitivity import Effect
from kvsim.plots import BLUE, GREEN, ORANGE, write_plots

STYLE = {
    "font.size": 10.5,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.edgecolor": "#8a8a8a",
    "grid.color": "#e4e4e4",
}
RUN_FIGURES = ("kv_memory", "queue")
"""Figures of a single run that a report repeats for the recommended fleet."""


def figures(plan: Plan) -> dict[str, bytes]:
    """PNG files by name, those that the plan has something to show for."""
    if not plan.candidates:
        return {}
    drawn = {"latency": png(lambda axes: draw_latency(axes, plan))}
    if len(plan.candidates) > 1:
        height = 1.1 + 0.5 * len(plan.candidates)
        drawn["alternatives"] = png(lambda axes: draw_alternatives(axes, plan), height)
    if plan.exploration is not None:
        seen = plan.exploration
        drawn["sizes"] = png(lambda axes: draw_sizes(axes, plan, seen))
        drawn["loads"] = png(lambda axes: draw_loads(axes, plan, seen))
        drawn["pareto"] = png(lambda axes: draw_pareto(axes, plan, seen))
        drawn["sensitivity"] = png(lambda axes: draw_tornado(axes, plan, seen), 3.2)
    return drawn | run_figures(plan)


def run_figures(plan: Plan) -> dict[str, bytes]:
    """Memory and queue of the recommended fleet over time, as for any run."""
    result = plan.candidates[0].outcome.result
    if result is None:
        return {}
    result.name = plan.traffic.name
    with tempfile.TemporaryDirectory(prefix="kvsim-") as folder:
        paths = {path.stem: path for path in write_plots(result, Path(folder))}
        return {name: paths[name].read_bytes() for name in RUN_FIGURES}


def png(draw: Callable[[Axes], None], height: float = 4.2) -> bytes:
    """A figure of one panel."""
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]  # it wants its own long Literal
        figure = Figure(figsize=(9.0, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
        draw(figure.subplots())
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=130, metadata={"Software": "kvsim"})
    return buffer.getvalue()


def draw_alternatives(axes: Axes, plan: Plan) -> None:
    """What each GPU type costs a month."""
    names = [f"{c.fleet.bill.gpus_needed} x {c.market.gpu.name}" for c in plan.candidates]
    months = [c.usd_per_month for c in plan.candidates]
    bars = axes.barh(names, months, color=[BLUE, *["#9db8cc"] * (len(months) - 1)], height=0.6)
    axes.bar_label(bars, [f" ${month:,.0f}" for month in months])
    axes.invert_yaxis()
    axes.set_xlim(0, max(months) * 1.18)
    axes.xaxis.set_major_formatter(FuncFormatter(dollars))
    axes.set_xlabel("dollars a month")


def draw_latency(axes: Axes, plan: Plan) -> None:
    """Distribution functions of the latencies that are limited, with their limits."""
    result = plan.candidates[0].outcome.result
    assert result is not None
    measured = latencies(result.requests.served())
    limits = plan.question.objective.limits
    colours = dict(zip(limits, (ORANGE, GREEN, BLUE, "#cc79a7", "#56b4e9"), strict=False))
    for name, limit in limits.items():
        values = np.sort(measured[name][~np.isnan(measured[name])])
        if not len(values):
            continue
        ranks = np.arange(1, len(values) + 1) / len(values)
        within = float((values <= limit).mean())
        label = f"{name.upper()}: {within:.2%} within {duration(limit)}"
        axes.plot(np.maximum(values, 1e-6), ranks, color=colours[name], linewidth=1.8, label=label)
        axes.axvline(limit, color=colours[name], linestyle="--", linewidth=1.2)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(duration))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(0, 1.01)
    axes.grid()
    axes.set_xlabel("latency (logarithmic); dashed: the limit")
    axes.set_ylabel("share of requests at or below")
    axes.legend(loc="lower right", framealpha=0.9, edgecolor="white")


def draw_sizes(axes: Axes, plan: Plan, seen: Exploration) -> None:
    """Share of good requests by the size of the fleet, and what means would have said."""
    best = plan.candidates[0]
    size = best.fleet.placement.tensor_parallel_size
    counts = [count * size for count, _ in seen.sizes]
    shares = [outcome.attainment for _, outcome in seen.sizes]
    axes.plot(
        counts, shares, "o-", color=BLUE, label=f"{best.market.gpu.name}, TP {size}, replayed"
    )
    needed = best.fleet.bill.gpus_needed
    axes.axvline(needed, color=GREEN, linewidth=1.2, label=f"recommended: {needed} GPUs")
    if best.by_means is not None:
        said, reached = best.by_means.gpus, best.by_means.outcome.attainment
        axes.plot(
            [said], [reached], "X", color=ORANGE, markersize=10,
            label=f"mean-based sizing: {said} GPUs (TP {best.by_means.placement.tensor_parallel_size})",
        )  # fmt: skip
    target = plan.question.objective.attainment
    if target is not None:
        axes.axhline(
            target, color="#8a8a8a", linestyle="--", linewidth=1, label=f"target {target:.0%}"
        )
    axes.set_ylim(0, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid()
    axes.set_xlabel("GPUs")
    axes.set_ylabel("requests within all limits")
    axes.legend(loc="lower right", framealpha=0.9, edgecolor="white")


def draw_loads(axes: Axes, plan: Plan, seen: Exploration) -> None:
    """Share of good requests by arrival rate for the recommended fleet."""
    rate = plan.traffic.rate
    axes.plot(
        [load.traffic * rate for load in seen.loads],
        [load.outcome.attainment for load in seen.loads],
        "o-",
        color=BLUE,
    )
    axes.axvline(rate, color="#8a8a8a", linewidth=1.2, label=f"the trace: {rate:.2f} requests/s")
    highest = plan.candidates[0].highest_rate
    if highest is not None:
        axes.axvline(
            highest * rate,
            color=GREEN,
            label=f"highest that meets the objective: {highest * rate:.2f}",
        )
    axes.axvline(
        seen.knee.traffic * rate,
        color=ORANGE,
        linestyle="--",
        label=f"knee: {seen.knee.traffic * rate:.2f}",
    )
    axes.set_ylim(0, 1.03)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid()
    axes.set_xlabel("requests per second")
    axes.set_ylabel("requests within all limits")
    axes.legend(loc="lower left", framealpha=0.9, edgecolor="white")


def draw_pareto(axes: Axes, plan: Plan, seen: Exploration) -> None:
    """What users get against what a GPU gives, as the load grows."""
    gpus = plan.candidates[0].fleet.bill.gpus_needed
    speeds, yields = [], []
    for load in seen.loads:
        summary = load.outcome.summary or {}
        gap, tokens = summary.get("mean_tpot_ms"), summary.get("output_throughput")
        if not isinstance(gap, int | float) or not isinstance(tokens, int | float):
            continue
        speeds.append(1e3 / gap)
        yields.append(tokens / gpus)
        axes.annotate(
            f"{load.traffic * plan.traffic.rate:.2g}/s",
            (speeds[-1], yields[-1]),
            xytext=(6, 4),
            textcoords="offset points",
            fontsize=9,
        )
    axes.plot(speeds, yields, "o-", color=BLUE)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid()
    axes.set_xlabel("output tokens per second that a user sees (1 / mean time per output token)")
    axes.set_ylabel("output tokens per second and GPU")


def draw_tornado(axes: Axes, plan: Plan, seen: Exploration) -> None:
    """Dollars a month when an assumption is wrong, the largest effect on top."""
    base = plan.candidates[0].fleet.bill.usd_per_month
    factors = list(dict.fromkeys(effect.case.factor for effect in seen.effects))
    pairs = {f: [e for e in seen.effects if e.case.factor == f] for f in factors}
    factors.sort(key=lambda factor: spread(pairs[factor], base))
    for place, factor in enumerate(factors):
        for effect, colour in zip(pairs[factor], (BLUE, ORANGE), strict=True):
            month = base if effect.usd_per_month is None else effect.usd_per_month
            axes.barh(place, month - base, left=base, color=colour, height=0.55)
            side = "right" if colour == BLUE else "left"
            text = f" {effect.gpus or 'too many'} GPUs "
            edge = min(month, base) if colour == BLUE else max(month, base)
            axes.annotate(text, (edge, place), ha=side, va="center", fontsize=9.5)
    axes.axvline(base, color="#333333", linewidth=1)
    axes.set_yticks(range(len(factors)), [f"{factor} {amount(plan, factor)}" for factor in factors])
    low, high = axes.get_xlim()
    margin = max(0.22 * (high - low), 0.1 * base)
    axes.set_xlim(low - margin, high + margin)
    axes.xaxis.set_major_formatter(FuncFormatter(dollars))
    axes.set_xlabel(
        f"dollars a month (now {base:,.0f}); blue: less or faster, orange: more or slower"
    )


def amount(plan: Plan, factor: str) -> str:
    """By how much a factor is varied."""
    return f"±{plan.calibration if factor == 'calibration' else 0.2:.0%}"


def spread(effects: list[Effect], base: float) -> float:
    """How far the cases of a factor move the cost."""
    return max(abs((effect.usd_per_month or 2 * base) - base) for effect in effects)


def dollars(value: float, _: object = None) -> str:
    """An amount on an axis."""
    return f"${value:,.0f}"


def duration(seconds: float, _: object = None) -> str:
    """A time with the unit that suits it."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{seconds / size:,.3g} {unit}"
    return f"{seconds:.3g} s"
