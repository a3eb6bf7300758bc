"""Replay a trace, a sample or one's own, and put the run beside the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import streamlit as st

from kvsim.catalog import gpu_names, load_gpu
from kvsim.compose import ignored, simulate
from kvsim.core import Request
from kvsim.memory import ALLOCATORS
from kvsim.memory.reservation import RESERVATIONS
from kvsim.runs import RunResult, run_path
from kvsim.scenario import Scenario
from kvsim.scheduling import SCHEDULERS

from .. import state
from ..jobs import Job, Told, jobs
from ..shown import quantity
from ..text import plain
from ..workspace import Desk
from .parts import link
from .traces import chosen_trace, models

DTYPES = ("auto", "fp8", "int8", "int4")
RESERVING = ("contiguous", "buddy", "slab")
"""Allocators that set memory aside at admission."""
EVERY = 256
"""Requests after which progress is told."""
PATIENCE = 1.5
"""Seconds in which most replays of samples are over."""


def page(desk: Desk) -> None:
    """The page."""
    say = desk.say
    st.title(say("replay.title"))
    st.markdown(say("replay.intro"))
    trace = chosen_trace(desk)
    scenario = chosen_scenario(desk)
    for name in ignored(scenario):
        st.caption(say("replay.ignored", name=name))
    suggestion = f"{trace.name.split('.')[0]}-{scenario.allocator.name}" if trace else "run"
    with st.form("replay", border=False):
        name = st.text_input(say("replay.name"), suggestion, key=f"name-{suggestion}")
        wanted = st.form_submit_button(say("replay.go"), type="primary", disabled=trace is None)
    if wanted and trace is not None:
        place = run_path(desk.runs, name)
        key = f"replay:{place}:{trace}:{scenario.hash}"
        jobs().forget(key)
        job = jobs().start(key, lambda told: replayed(scenario, trace, place, told))
        job.wait(PATIENCE)
        st.session_state["replaying"] = key
    running = jobs().get(st.session_state.get("replaying", ""))
    if running is not None:
        (outcome if running.is_over else progress)(desk, running)


def chosen_scenario(desk: Desk) -> Scenario:
    """The settings that matter most; everything else is as the command line has it."""
    say = desk.say
    one, two, three = st.columns(3)
    with one:
        model = state.pick(say("column.model"), "model", models())
        gpu = state.pick(say("column.gpu"), "gpu", gpu_names(), default=load_gpu("h200").name)
        replicas = whole(say("column.replicas"), "replicas", (1.0, 64.0), 1.0)
    with two:
        memory = chosen_memory(desk)
    with three:
        scheduler = state.pick(say("column.scheduler"), "scheduler", list(SCHEDULERS), default="chunked")  # fmt: skip
        dtype = state.pick(say("column.kv_cache_dtype"), "dtype", DTYPES)
        speedup = state.entered(say("memory.speedup"), "speedup", (0.1, 100.0), 1.0, 0.5)
    with one:
        ttft = state.entered(say("replay.ttft"), "ttft", (0.0, 600.0), 2.0, 0.1)
    with two:
        tpot = state.entered(say("replay.tpot"), "tpot", (0.0, 10_000.0), 50.0, 5.0)
    with three:
        limit = whole(say("replay.limit"), "limit", (0.0, 1e7), 0.0)
    return Scenario().changed(
        model=model,
        gpu=gpu,
        replicas=replicas,
        scheduler=scheduler,
        kv_cache_dtype=dtype,
        slo=slo(ttft, tpot),
        workload=workload(limit, speedup),
        **memory,
    )


def chosen_memory(desk: Desk) -> dict[str, object]:
    """The allocator, what it sets aside, and the size of its pool if that is given."""
    say = desk.say
    allocator = state.pick(say("column.allocator"), "allocator", list(ALLOCATORS), default="paged")
    found: dict[str, object] = {"allocator": allocator}
    if allocator in RESERVING:
        found["reservation"] = state.pick(
            say("replay.rule"), "rule", list(RESERVATIONS), shown=lambda name: say(f"rule.{name}")
        )
    blocks = whole(say("replay.blocks"), "blocks", (0.0, 1e7), 0.0)
    if blocks:
        found["num_gpu_blocks_override"] = blocks
    return found


def whole(label: str, name: str, bounds: tuple[float, float], default: float) -> int:
    """A whole number."""
    return int(state.entered(label, name, bounds, default, 1.0, format="%.0f"))


def slo(ttft: float, tpot_ms: float) -> dict[str, float]:
    """Objectives in seconds; 0 is none."""
    given = {"ttft": ttft, "tpot": tpot_ms / 1e3}
    return {name: limit for name, limit in given.items() if limit}


def workload(limit: int, speedup: float) -> dict[str, object]:
    """How the trace is read."""
    found: dict[str, object] = {}
    if limit:
        found["limit"] = limit
    if speedup != 1:
        found["speedup"] = speedup
    return found


def replayed(scenario: Scenario, trace: Path, place: Path, told: Told) -> RunResult:
    """The run, written to its place."""

    def watch(requests: Iterable[Request]) -> Iterator[Request]:
        for number, request in enumerate(requests):
            if number % EVERY == 0:
                told("replay", number)
            yield request

    return simulate(scenario, trace, out=place, keep=False, watch=watch)


@st.fragment(run_every=1.0)
def progress(desk: Desk, job: Job[object]) -> None:
    """How far it is; the page is shown anew when it is over."""
    if job.is_over:
        st.rerun()
    st.progress(0.0, desk.say("replay.running", count=quantity(job.count)))
    if st.button(desk.say("replay.stop")):
        job.stop()


def outcome(desk: Desk, job: Job[object]) -> None:
    """What came of it."""
    say = desk.say
    if job.error is not None:
        st.error(say("error.page", reason=desk.told(job.error)), icon=":material/error:")
        return
    result = job.result
    assert isinstance(result, RunResult)
    st.success(say("replay.done", name=plain(result.name)), icon=":material/check_circle:")
    with st.container(horizontal=True):
        link(desk, "run", say("replay.look"), run=result.name)
        link(desk, "compare", say("replay.compare"))
