"""Runs side by side: utilisation, latency and cost on one screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import pandas as pd
import streamlit as st

from kvsim.analysis.digest import Digest
from kvsim.errors import KvsimError
from kvsim.runs import RunResult

from .. import state
from ..figures import compare as figures
from ..money import RunCost, cost_of
from ..rows import COLUMNS, rows
from ..settings import slos
from ..shown import ABSENT, brief, dollars, number, percent, quantity
from ..text import plain
from ..workspace import Desk, digest_of
from .parts import CARD, draw, nothing_to_show

SHOWN_FIRST = 10
Colour = Literal["normal", "inverse", "off"]
METRICS = ("ttft", "tpot", "e2el", "queue_time")


def page(desk: Desk) -> None:
    """The page."""
    say = desk.say
    st.title(say("compare.title"))
    if nothing_to_show(desk):
        return
    names, focus, baseline, price = choices(desk)
    if not names:
        st.info(say("compare.choose"), icon=":material/checklist:")
        return
    runs = {name: desk.shelf.runs[name] for name in names}
    costs = {name: cost_of(run, price) for name, run in runs.items()}
    cards(desk, focus, baseline, price)
    panels(desk, runs, costs)
    table(desk, runs, costs)


def choices(desk: Desk) -> tuple[list[str], str, str, float | None]:
    """Which runs, the one that the cards show, the one it is held against, and a price."""
    say, known = desk.say, list(desk.shelf.runs)
    names = state.picks(say("compare.runs"), "run", known, default=known[:SHOWN_FIRST])
    one, other, third = st.columns(3)
    among = names or known
    with one:
        focus = state.pick(say("compare.focus"), "focus", among, default=best(desk, among))
    with other:
        baseline = state.pick(say("compare.baseline"), "baseline", among)
    with third:
        price = state.entered(
            say("compare.price"), "price", (0.0, 1_000.0), 0.0, 0.1, help=say("compare.price_help")
        )
    return names, focus, baseline, price or None


def best(desk: Desk, names: list[str]) -> str:
    """The run with the highest goodput, else throughput."""

    def rank(name: str) -> tuple[float, float]:
        summary = desk.shelf.runs[name].summary
        keys = ("request_goodput", "request_throughput")
        good, served = (number(summary.get(key)) or 0.0 for key in keys)
        return good, served

    return max(names, key=rank)


CARDS: tuple[tuple[str, Callable[[object], str], Colour], ...] = (
    ("mean_kv_cache_usage", percent, "off"),
    ("p99_ttft_ms", brief, "inverse"),
    ("p99_tpot_ms", brief, "inverse"),
    ("request_goodput", quantity, "normal"),
    ("usd_per_million", dollars, "inverse"),
)
"""Key figures, how they are written, and whether more is better."""


def cards(desk: Desk, focus: str, baseline: str, price: float | None) -> None:
    """Key figures of one run, and how far they are from another's."""
    say = desk.say
    ours, theirs = (figures_of(desk.shelf.runs[name], price) for name in (focus, baseline))
    row = st.container(horizontal=True, gap="small")
    for key, text, colour in CARDS:
        row.metric(
            say(f"card.{key}"),
            text(ours[key]),
            change(ours[key], theirs[key]) if focus != baseline else None,
            delta_color=colour,
            border=True,
            width=CARD,
            height="stretch",
        )
    if focus != baseline:
        st.caption(say("compare.against", focus=plain(focus), baseline=plain(baseline)))


def figures_of(run: RunResult, price: float | None) -> dict[str, float | None]:
    """The key figures of a run."""
    found = {key: number(run.summary.get(key)) for key, _, _ in CARDS}
    cost = cost_of(run, price)
    found["usd_per_million"] = cost.units.per_million_output_tokens if cost else None
    return found


def change(value: float | None, before: float | None) -> str | None:
    """By how much a figure differs, as a share of the baseline's."""
    if value is None or not before:
        return None
    share = value / before - 1
    return f"{share:+z.1%}" if abs(share) < 10 else f"{value / before:,.0f}×"


def panels(desk: Desk, runs: Mapping[str, RunResult], costs: Mapping[str, RunCost | None]) -> None:
    """Memory, latency, throughput and cost."""
    say = desk.say
    left, right = st.columns(2)
    with left:
        draw(figures.memory_figure(runs, say), "memory")
        draw(figures.throughput_figure(runs, say), "throughput")
    with right:
        metric = state.pick(
            say("compare.metric"),
            "metric",
            METRICS,
            shown=lambda name: say(f"metric.{name}"),
            widget=st.segmented_control,
        )
        limits = slos(runs.values(), metric)
        draw(figures.latency_figure(digests(desk, runs), metric, limits, say), "latency")
        draw(figures.cost_figure(costs, say), "cost")


def digests(desk: Desk, runs: Mapping[str, RunResult]) -> dict[str, Digest]:
    """The digests of the runs whose requests can be read; the others are named."""
    found: dict[str, Digest] = {}
    summaries = [name for name, run in runs.items() if run.path is None]
    if summaries:
        st.caption(desk.say("error.only_summaries", runs=plain(", ".join(summaries))))
    for name, run in runs.items():
        if run.path is None:
            continue
        try:
            found[name] = digest_of(run)
        except (KvsimError, OSError) as error:
            st.caption(desk.say("error.no_table", run=plain(name), reason=desk.told(error)))
    return found


def table(desk: Desk, runs: Mapping[str, RunResult], costs: Mapping[str, RunCost | None]) -> None:
    """Everything as numbers, to sort and to take away."""
    say = desk.say
    frame = pd.DataFrame(rows(runs, costs), columns=list(COLUMNS))
    st.subheader(say("compare.table"))
    formats = {
        name: st.column_config.Column(say(f"column.{name}"))
        if kind is None
        else st.column_config.NumberColumn(say(f"column.{name}"), format=kind)
        for name, kind in COLUMNS.items()
    }
    st.dataframe(frame, column_config=formats, hide_index=True, placeholder=ABSENT)
    row = st.container(horizontal=True)
    csv = frame.to_csv(index=False).encode()
    row.download_button(say("compare.csv"), csv, "kvsim-runs.csv", "text/csv", on_click="ignore")
    parquet = frame.to_parquet(index=False)
    row.download_button(
        say("compare.parquet"),
        parquet,
        "kvsim-runs.parquet",
        "application/vnd.apache.parquet",
        on_click="ignore",
    )
