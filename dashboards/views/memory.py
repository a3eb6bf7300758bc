"""The pool as a picture over time: why contiguous reservation wastes memory and paging does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import streamlit as st

from .. import state
from ..figures import memory as figures
from ..pool import Film, Workload, films, shared_prefixes
from ..samples import SAMPLES
from ..shown import percent, quantity
from ..workspace import Desk
from .parts import draw

SIZES = {"512": 512, "1024": 1_024, "2048": 2_048}
RULES = ("max", "pow2", "oracle")
TRACES = tuple(name for name in SAMPLES if name in ("chat", "code"))
REQUESTS = 80
START = 0.2
"""Share of the time at which a newcomer looks first."""


def page(desk: Desk) -> None:
    """The page."""
    say = desk.say
    st.title(say("memory.title"))
    st.markdown(say("memory.intro"))
    workload = chosen(desk)
    with st.spinner(say("wait.replay")):
        found = filmed(workload)
    end = max(film.end for film in found.values())
    left, right = st.columns([3, 1])
    with left:
        time = state.amount(
            say("memory.time"), "t", (0.0, end), round(START * end, 2), end / 200, format="%.1f s"
        )
    with right:
        by = state.pick(
            say("memory.by"),
            "by",
            ("state", "owner"),
            shown=lambda name: say(f"memory.by_{name}"),
            widget=st.segmented_control,
        )
    draw(figures.legend_figure(say), "legend")
    pictures(desk, found, time, by)
    draw(figures.history_figure(found, time, say), "history")
    tree(desk, workload, found["radix"], time)


def chosen(desk: Desk) -> Workload:
    """Which trace, in how large a pool, and what contiguous and buddy set aside."""
    say = desk.say
    one, two, three, four = st.columns(4)
    with one:
        trace = state.pick(say("memory.trace"), "trace", TRACES)
    with two:
        blocks = state.pick(say("memory.blocks"), "blocks", list(SIZES), default="1024")
    with three:
        rule = state.pick(say("memory.rule"), "rule", RULES, shown=lambda name: say(f"rule.{name}"))
    with four:
        speedup = state.amount(
            say("memory.speedup"), "speedup", (1.0, 40.0), 10.0, 1.0, format="%.0f ×"
        )
    return Workload(str(desk.trace(trace)), REQUESTS, speedup, SIZES[blocks], rule)


@st.cache_resource(max_entries=16, show_spinner=False)
def filmed(workload: Workload) -> dict[str, Film]:
    """Replayed once for every choice."""
    return films(workload)


def pictures(desk: Desk, found: Mapping[str, Film], time: float, by: str) -> None:
    """The four pools at one instant, two in a row."""
    for pair in batched(found):
        for column, name in zip(st.columns(2), pair, strict=True):
            with column:
                picture(desk, name, found[name], time, by)


def batched(found: Mapping[str, Film]) -> Iterator[tuple[str, str]]:
    """Names two by two."""
    names = iter(found)
    return zip(names, names, strict=True)


def picture(desk: Desk, name: str, film: Film, time: float, by: str) -> None:
    """A pool, and what is in it in figures."""
    say = desk.say
    st.markdown(f"**{say(f'allocator.{name}')}**")
    frame = film.at(time)
    if frame is None:
        st.caption(say("memory.before"))
        return
    draw(figures.map_figure(frame.seen, by, say), f"map-{name}")
    usage, slots = frame.seen.usage, sum(frame.seen.usage)
    wasted = usage.internal + usage.reserved + usage.external
    st.caption(
        say(
            "memory.state",
            running=quantity(frame.running),
            waiting=quantity(frame.waiting),
            used=percent(usage.used / slots, 0),
            wasted=percent(wasted / slots, 0),
            cached=percent(usage.cached / slots, 0),
            ended=sum(ended.time <= time for ended in film.ended),
        )
    )


def tree(desk: Desk, workload: Workload, film: Film, time: float) -> None:
    """What the radix tree was asked for, and what it gave."""
    branches = shared_prefixes(workload, film.ended, time)
    if branches:
        draw(figures.tree_figure(branches, desk.say), "tree")
        st.caption(desk.say("memory.tree_help"))
    else:
        st.caption(desk.say("memory.no_tree"))
