"""Draws what a prefix cache gives and how a trace uses its blocks; an importer of matplotlib."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from itertools import cycle, product
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, PercentFormatter

from kvsim.analysis.accesses import Accesses
from kvsim.analysis.reuse import (
    Weighted,
    popularity,
    reuse_distances,
    reuse_times,
    sharing,
    working_set,
)
from kvsim.analysis.savings import TokenCost, savings
from kvsim.caching.bounds import Optimum
from kvsim.caching.curve import lru_curve
from kvsim.caching.study import Study
from kvsim.files import whole_file, written
from kvsim.plots import BLUE, GREEN, ORANGE, STYLE

if TYPE_CHECKING:
    from kvsim.tables import Ints

COLOURS = (ORANGE, GREEN, "#cc79a7", "#56b4e9", "#999999", "#000000", "#f0c000")
LINES = ("o-", "s--", "^:", "D-.")
"""A policy has a colour, and once all have been given the next kind of line."""
POINTS = 48
"""Capacities at which the bound is drawn."""
MOST_NAMES = 30
"""Sessions or tenants whose sharing is drawn."""
NAME = 12
"""Letters of a name that are shown."""


def write_figures(
    accesses: Accesses, found: Study, folder: Path, cost: TokenCost | None = None
) -> None:
    """Draw the figures of a trace into a folder; those that it has no data for are left out.

    ``cost`` says what a token is worth that need not be computed.
    """
    with written(folder):
        folder.mkdir(parents=True, exist_ok=True)
    _save(folder / "hits_by_capacity.png", lambda axes: draw_hits(axes, accesses, found, cost))
    if len(accesses):
        _save(folder / "popularity.png", lambda axes: draw_popularity(axes, accesses))
    distances, times = reuse_distances(accesses), reuse_times(accesses)
    if len(distances.values):
        _save(folder / "reuse_distance.png", lambda axes: draw_distances(axes, distances, found))
    if len(times.values):
        _save(folder / "reuse_time.png", lambda axes: draw_times(axes, times))
    if (accesses.arrival > np.nanmin(accesses.arrival, initial=np.inf)).any():
        _save(folder / "working_set.png", lambda axes: draw_working_set(axes, accesses))
    shared = partial(draw_sharing, accesses=accesses)
    if names := list(accesses.sessions):
        draw = partial(shared, kind="session", group=accesses.session, names=names)
        _save(folder / "sharing.png", draw)
    if names := list(accesses.tenants):
        draw = partial(shared, kind="tenant", group=accesses.tenant, names=names)
        _save(folder / "sharing_of_tenants.png", draw)


def _save(path: Path, draw: Callable[[Axes], str]) -> None:
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]  # it wants its own long Literal
        figure = Figure(figsize=(9.2, 5.2), layout=ConstrainedLayoutEngine())
        axes = figure.subplots()
        title = draw(axes)
        axes.set_title(title, loc="left", fontsize=13, fontweight="bold")
        with whole_file(path) as file:
            figure.savefig(file, format="png", dpi=130, metadata={"Software": "kvsim"})


def draw_hits(axes: Axes, accesses: Accesses, found: Study, cost: TokenCost | None = None) -> str:
    """What more memory would buy: the tokens that LRU saves by capacity, the policies, the bounds."""
    curve, size = lru_curve(accesses), accesses.block_size
    prompt = max(1, found.prompt_tokens)
    largest = max(2, found.distinct_blocks)
    capacities = np.unique(np.geomspace(max(1, largest // 2048), largest, POINTS).astype(int))
    optimum = Optimum(accesses)
    bound = [optimum.most(int(capacity))[1] / prompt for capacity in capacities]
    axes.plot(
        capacities * size, bound, "--", color="#333333", linewidth=1.3, label="optimum (bound)"
    )
    steps = np.searchsorted(curve.capacity, capacities, side="right")
    tokens = np.concatenate(([0], curve.usable_tokens))[steps]
    axes.plot(capacities * size, tokens / prompt, color=BLUE, linewidth=2, label="lru")
    others = sorted({row.policy for row in found.rows if row.policy != "lru"})
    for policy, (line, colour) in zip(others, cycle(product(LINES, COLOURS)), strict=False):
        rows = [r for r in found.rows if r.policy == policy and r.capacity_tokens is not None]
        points = sorted((r.capacity_tokens or 0, r.token_hit_rate or 0) for r in rows)
        axes.plot(*zip(*points, strict=True), line, color=colour, markersize=4, label=policy)
    ceiling = found.bounds[-1].token_hit_rate or 0
    axes.axhline(ceiling, color="#8a8a8a", linestyle=":", label=f"infinite (bound) {ceiling:.1%}")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(count))
    axes.set_xlabel("capacity, tokens (logarithmic)")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("prompt tokens that need not be computed")
    axes.set_ylim(bottom=0)
    if cost is None:
        _finish(axes)
    else:
        _worth(axes, found, cost)
    return "What more memory would buy"


def _worth(axes: Axes, found: Study, cost: TokenCost) -> None:
    """Beside the share of tokens, what it saves in dollars and in latency."""
    saved = savings(found.prompt_tokens, found.requests, cost)
    scales = [("dollars saved over the trace", saved.usd)]
    if saved.mean_ttft_ms is not None:
        scales.append(("seconds of mean TTFT saved, idle engine", saved.mean_ttft_ms / 1e3))
    for at, (label, most) in enumerate(scales):
        if most > 0:
            both = (partial(operator.mul, most), partial(operator.mul, 1 / most))
            axes.secondary_yaxis(1 + 0.14 * at, functions=both).set_ylabel(label)
    axes.grid()
    axes.set_axisbelow(True)
    axes.legend(loc="best", frameon=False)


def draw_popularity(axes: Axes, accesses: Accesses) -> str:
    """Uses of the blocks, the most popular first."""
    popular = popularity(accesses)
    ranks = np.concatenate(([1], np.cumsum(popular.blocks[::-1])))
    uses = popular.uses[::-1]
    axes.step(ranks[1:], uses, where="pre", color=BLUE, linewidth=1.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(count))
    axes.yaxis.set_major_formatter(FuncFormatter(count))
    axes.set_xlabel("blocks, the most popular first (logarithmic)")
    axes.set_ylabel("uses (logarithmic)")
    axes.grid()
    return f"Block popularity: {popular.used_once:.1%} are used once"


def draw_distances(axes: Axes, found: Weighted, study: Study) -> str:
    """How far apart two uses of a block are, in tokens of other blocks."""
    _distribution(axes, found.values * study.block_size, found.blocks)
    axes.xaxis.set_major_formatter(FuncFormatter(count))
    axes.set_xlabel("different tokens used meanwhile (logarithmic)")
    return "Reuse distance: the capacity that LRU needs for a reuse to hit"


def draw_times(axes: Axes, found: Weighted) -> str:
    """How long two uses of a block are apart."""
    least = found.values[found.values > 0].min(initial=1.0)
    _distribution(axes, np.maximum(found.values, least / 2), found.blocks)
    axes.xaxis.set_major_formatter(FuncFormatter(count))
    axes.set_xlabel(
        "seconds between the two requests (logarithmic; at once stands at the left edge)"
    )
    return f"Time between two uses of a block: median {found.quantile(0.5):,.1f} s"


def _distribution(axes: Axes, values: np.typing.NDArray[np.float64], blocks: object) -> None:
    weight = np.cumsum(np.asarray(blocks, dtype=np.float64))
    axes.step(values, weight / weight[-1], where="post", color=BLUE, linewidth=1.8)
    axes.set_xscale("log")
    axes.set_xlim(left=values[0])
    axes.set_ylim(0, 1.005)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("share of reused blocks at or below")
    axes.grid()


def draw_working_set(axes: Axes, accesses: Accesses, window: float = 300.0) -> str:
    """Different blocks in use over time, and in the last ``window`` seconds."""
    found = working_set(accesses, window)
    size = accesses.block_size
    axes.fill_between(found.time, found.recent * size, color=BLUE, alpha=0.25, linewidth=0)
    axes.plot(found.time, found.recent * size, color=BLUE, label=f"of the last {window:,.0f} s")
    axes.plot(found.time, found.ever * size, color=ORANGE, label="since the start")
    axes.yaxis.set_major_formatter(FuncFormatter(count))
    axes.set_ylabel("different tokens used")
    axes.set_xlabel("time, seconds")
    axes.set_ylim(bottom=0)
    _finish(axes)
    return "Working set"


def draw_sharing(
    axes: Axes, accesses: Accesses, *, kind: str, group: Ints, names: list[str]
) -> str:
    """Who uses again what whom has used, for those of a ``kind`` that share most with others.

    ``group``: of each request an index into ``names``, -1 for none.
    """
    found = sharing(accesses, group, names, most=4_000)
    across = [e for e in zip(found.source, found.user, found.blocks, strict=True) if e[0] != e[1]]
    weight: dict[str, int] = {}
    for source, user, blocks in across:
        weight[source] = weight.get(source, 0) + blocks
        weight[user] = weight.get(user, 0) + blocks
    shown = sorted(weight, key=lambda name: (-weight[name], name))[:MOST_NAMES]
    place = {name: at for at, name in enumerate(shown)}
    matrix = np.zeros((len(shown), len(shown)))
    for source, user, blocks in across:
        if source in place and user in place:
            matrix[place[source], place[user]] = blocks * accesses.block_size
    if shown:
        image = axes.imshow(matrix, cmap="Blues", aspect="auto")
        assert axes.figure is not None
        axes.figure.colorbar(image, ax=axes, label="tokens", format=FuncFormatter(count))
        short = [name if len(name) <= NAME else f"{name[: NAME - 1]}…" for name in shown]
        axes.set_xticks(range(len(short)), short, rotation=90, fontsize=8)
        axes.set_yticks(range(len(short)), short, fontsize=8)
    axes.set_xlabel(f"{kind} that uses them again")
    axes.set_ylabel(f"{kind} that had used them")
    total = max(1, found.within + found.across)
    return f"Sharing: {found.across / total:.1%} of reused blocks come from another {kind}"


def _finish(axes: Axes) -> None:
    axes.grid()
    axes.set_axisbelow(True)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)


def count(value: float, _: object = None) -> str:
    """A number with the prefix that suits it."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g}"
