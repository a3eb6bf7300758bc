"""One run: what it was, what held it back, how it went, and which requests suffered."""

from __future__ import annotations

import numpy as np
import streamlit as st

from kvsim.analysis.digest import Digest
from kvsim.runs import RunResult
from kvsim.tables import RequestTable

from .. import state
from ..figures import run as figures
from ..figures.style import time_unit
from ..money import cost_of
from ..settings import setting, slos
from ..shown import ABSENT, brief, dollars, percent, quantity
from ..text import plain
from ..workspace import Desk, digest_of, fresh, samples_of
from .parts import draw, metrics, nothing_to_show

METRICS = ("ttft", "tpot", "e2el", "queue_time")
SLOWEST = {"10": 10, "20": 20, "40": 40}
MOST_ROWS = 10**12
SETTINGS = ("model", "gpu", "allocator", "scheduler", "replicas", "tensor_parallel_size")


def page(desk: Desk) -> None:
    """The page."""
    say = desk.say
    st.title(say("run.title"))
    if nothing_to_show(desk):
        return
    name = state.pick(say("run.choose"), "run", list(desk.shelf.runs))
    run = desk.shelf.runs[name]
    settings = ((say(f"column.{key}"), plain(setting(run, key) or ABSENT)) for key in SETTINGS)
    st.caption(" · ".join(say("run.setting", name=key, value=value) for key, value in settings))
    cards(desk, run)
    judgement(desk, run)
    if run.path is None:
        st.info(say("error.only_summary"), icon=":material/table_rows:")
        return
    found = digest_of(run)
    timeline(desk, run, found)
    if found.requests:
        requests(desk, run, found)
        lengths(desk, run, found)


def cards(desk: Desk, run: RunResult) -> None:
    """Key figures."""
    say, get, cost = desk.say, run.summary.get, cost_of(run)
    shown = (
        ("completed", quantity(get("completed"))),
        ("mean_kv_cache_usage", percent(get("mean_kv_cache_usage"))),
        ("prefix_cache_hit_rate", percent(get("prefix_cache_hit_rate"))),
        ("p99_ttft_ms", brief(get("p99_ttft_ms"))),
        ("p99_tpot_ms", brief(get("p99_tpot_ms"))),
        ("output_throughput", quantity(get("output_throughput"))),
        ("num_preemptions", quantity(get("num_preemptions"))),
        ("usd_per_million", dollars(cost.units.per_million_output_tokens if cost else None)),
    )
    metrics({say(f"card.{key}"): text for key, text in shown})
    st.caption(say("run.times", label=plain(say.translated(str(get("cost_model", ABSENT))))))


def judgement(desk: Desk, run: RunResult) -> None:
    """The verdict, and the numbers behind it."""
    say, summary = desk.say, run.summary
    verdict = str(summary.get("verdict", ABSENT))
    show = st.success if verdict == "none" else st.warning
    icon = ":material/check_circle:" if verdict == "none" else ":material/front_hand:"
    evidence = plain(say.translated(str(summary.get("verdict_evidence", ABSENT))))
    name = plain(say.translated(verdict))
    show(say("run.verdict", verdict=name, evidence=evidence), icon=icon)
    if summary.get("overloaded"):
        st.error(say("run.overloaded"), icon=":material/trending_up:")


def timeline(desk: Desk, run: RunResult, found: Digest) -> None:
    """All that changes over time, in a range that can be chosen."""
    say, samples = desk.say, samples_of(run)
    st.subheader(say("run.timeline"))
    if not len(samples):
        st.info(say("error.no_samples"), icon=":material/hourglass_empty:")
        return
    end = float(samples.time.max())
    low = min(found.start, end)
    if end <= low:
        st.info(say("error.no_samples"), icon=":material/hourglass_empty:")
        return
    seconds, unit = time_unit(end)
    label = say("run.range", unit=say(unit))
    start, stop = state.stretch(label, "range", low, end, unit=seconds, format="%.2f")
    draw(figures.timeline_figure(samples, start, max(stop, start + 1e-6), say), "timeline")
    st.caption(say("run.timeline_help"))


def requests(desk: Desk, run: RunResult, found: Digest) -> None:
    """The slowest requests, and one that is asked for."""
    say = desk.say
    st.subheader(say("run.slowest"))
    left, right = st.columns(2)
    with left:
        count = state.pick(
            say("run.count"), "slowest", list(SLOWEST), default="20", widget=st.segmented_control
        )
    with right:
        row = state.perhaps(say("run.request"), "request", MOST_ROWS)
    shown = found.slowest.take(np.arange(min(SLOWEST[count], len(found.slowest))))
    if row is not None:
        chosen = one_request(run, row)
        if chosen is None:
            st.info(say("run.no_request", row=row), icon=":material/search_off:")
        else:
            about_request(desk, chosen)
    draw(figures.waterfall_figure(shown, say), "waterfall")


def one_request(run: RunResult, row: int) -> RequestTable | None:
    """The served request of a row of the trace."""
    served = fresh(run).requests.served()
    places = np.flatnonzero(served.row == row)
    return served.take(places[:1]) if len(places) else None


def about_request(desk: Desk, chosen: RequestTable) -> None:
    """A request in numbers, and where its time went."""
    say = desk.say
    names = ("prompt_tokens", "cached_tokens", "output_tokens", "preemptions", "recomputed_tokens")
    metrics({say(f"column.{name}"): quantity(int(getattr(chosen, name)[0])) for name in names})
    draw(figures.waterfall_figure(chosen, say), "request")


def lengths(desk: Desk, run: RunResult, found: Digest) -> None:
    """Latency by the length of prompts, and the distribution of all latencies."""
    say = desk.say
    metric = state.pick(
        say("compare.metric"),
        "metric",
        [name for name in METRICS if name in found.bands],
        shown=lambda name: say(f"metric.{name}"),
        widget=st.segmented_control,
    )
    left, right = st.columns(2)
    with left:
        draw(figures.band_figure(found.bands[metric], metric, say), "bands")
    with right:
        limits = {name: limit for name in METRICS for limit in slos([run], name)}
        draw(figures.curves_figure(found.ranks, found.curves, limits, say), "curves")
