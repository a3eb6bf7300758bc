"""What a prefix cache of which size would save, how much is possible, and who shares with whom."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from kvsim.analysis.accesses import Accesses
from kvsim.catalog import gpu_names, load_gpu, load_model
from kvsim.errors import KvsimError
from kvsim.layout import KVLayout
from kvsim.memory.eviction.policies import EVICTIONS
from kvsim.sizing import plan_memory

from .. import state
from ..figures import prefix as figures
from ..reuse import Curves, Reuse, curves, read_accesses, reuse_of
from ..shown import percent, quantity
from ..sizes import limits_for
from ..workspace import Desk
from .parts import CARD, draw
from .traces import chosen_trace, models

FIRST = ("lru", "fifo", "lfu")
LIMIT = 20_000.0
"""Requests that are looked at unless more are asked for."""


def page(desk: Desk) -> None:
    """The page."""
    say = desk.say
    st.title(say("prefix.title"))
    one, two, three = st.columns(3)
    with one:
        trace = chosen_trace(desk)
    with two:
        model = state.pick(say("column.model"), "model", models())
    with three:
        gpu = state.pick(say("column.gpu"), "gpu", gpu_names(), default=load_gpu("h200").name)
    policies = state.picks(say("prefix.policies"), "policy", list(EVICTIONS), default=FIRST)
    if trace is None:
        return
    with st.spinner(say("wait.replay")):
        accesses = asked(trace, int(LIMIT))
        found = capacity_curves(accesses, str(trace), tuple(policies))
    token_bytes, pool = memory_of(model, gpu)
    cards(desk, found)
    draw(figures.hits_figure(found, token_bytes, pool, say), "hits")
    st.caption(say("prefix.hits_help"))
    again(desk, found, reuse(accesses, str(trace)))


@st.cache_resource(max_entries=8, show_spinner=False)
def asked(trace: Path, limit: int) -> Accesses:
    """What the trace asks of a cache."""
    return read_accesses(trace, limit)


@st.cache_resource(max_entries=32, show_spinner=False)
def capacity_curves(_accesses: Accesses, trace: str, policies: tuple[str, ...]) -> Curves:
    """Hits by capacity, once for each choice."""
    return curves(_accesses, policies)


@st.cache_resource(max_entries=8, show_spinner=False)
def reuse(_accesses: Accesses, trace: str) -> Reuse:
    """How the blocks of a trace are used again."""
    return reuse_of(_accesses)


def memory_of(model: str, gpu: str) -> tuple[int, int]:
    """KV bytes of a token, and tokens of one GPU's pool; 0 where the model does not fit."""
    layout = KVLayout(load_model(model))
    device = load_gpu(gpu)
    try:
        pool = plan_memory(layout, device, limits_for(device, 0.92, 16)).kv_tokens_capacity
    except KvsimError:
        pool = 0
    return layout.bytes_per_token, pool


def cards(desk: Desk, found: Curves) -> None:
    """Key figures."""
    half = next(
        (
            blocks * found.block_size
            for blocks, share in zip(found.capacities, found.optimum, strict=True)
            if share >= found.ceiling / 2
        ),
        None,
    )
    values = {
        "requests": quantity(found.requests),
        "tokens": quantity(found.prompt_tokens),
        "distinct": quantity(found.distinct * found.block_size),
        "ceiling": percent(found.ceiling),
        "half": quantity(half),
    }
    row = st.container(horizontal=True, gap="small")
    for key, text in values.items():
        label, help = desk.say(f"prefix.card_{key}"), desk.say(f"prefix.help_{key}")
        row.metric(label, text, border=True, width=CARD, help=help)


def again(desk: Desk, found: Curves, seen: Reuse) -> None:
    """Distances and times of reuse, and who shares."""
    say = desk.say
    if not len(seen.distances.values):
        st.info(say("prefix.nothing"), icon=":material/content_copy:")
        return
    left, right = st.columns(2)
    with left:
        draw(figures.reuse_figure(seen.distances, found.block_size, say), "distance")
    with right:
        if len(seen.times.values):
            draw(figures.times_figure(seen.times, say), "times")
        else:
            st.caption(say("prefix.no_times"))
    shared = seen.shared
    total = shared.within + shared.across
    if total:
        draw(figures.sharing_figure(shared, say), "sharing")
        kind = "prefix.by_session" if seen.grouped_by_session else "prefix.by_beginning"
        st.caption(say(kind, within=percent(shared.within / total), across=percent(shared.across / total)))  # fmt: skip
