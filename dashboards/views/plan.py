"""How many of which GPUs: the cheapest fleet that meets the objectives, re-planned as they move."""

from __future__ import annotations

from datetime import date

import streamlit as st

from kvsim.catalog import gpu_names, load_gpu
from kvsim.planning import Question, margins
from kvsim.reporting.plan_data import Exploration, PlanData

from .. import state
from ..figures import plan as figures
from ..jobs import Job, jobs
from ..plans import Wish, planner, question_of
from ..shown import dollars, percent, quantity
from ..text import plain
from ..workspace import Desk, scratch
from .parts import draw, listed, tell_problems
from .traces import chosen_trace, models

GPUS = ("h200", "l40s", "a100-80gb")
SIZES = ("1", "2", "4", "8")
COMMITMENTS = ("on-demand", "spot", "capacity block", "reserved-1y", "reserved-3y")
NEW = ""
"""In the list of plans: one that is made here."""
TRACE = "mooncake"
SHORT = 400
"""Requests of a trace that a first plan looks at."""


def page(desk: Desk) -> None:
    """The page."""
    say = desk.say
    st.title(say("plan.title"))
    tell_problems(desk)
    which = NEW
    if desk.shelf.plans:
        names = (NEW, *desk.shelf.plans)
        which = state.pick(say("plan.which"), "plan", names, shown=lambda name: name or say("plan.new"))  # fmt: skip
    if which != NEW:
        show(desk, desk.shelf.plans[which])
        return
    wish = chosen(desk)
    if wish is None:
        return
    question = question_of(wish, date.today())
    answered(desk, question)


def chosen(desk: Desk) -> Wish | None:
    """Objectives, traffic, hardware and prices."""
    say = desk.say
    one, two, three = st.columns(3)
    with one:
        trace = chosen_trace(desk, TRACE)
        model = state.pick(say("column.model"), "model", models())
        limit = state.entered(say("replay.limit"), "limit", (0.0, 1e7), SHORT, 100.0, format="%.0f")
        traffic = state.amount(
            say("plan.traffic"), "traffic", (0.5, 20.0), 1.0, 0.5, format="%.1f ×"
        )
    with two:
        ttft = state.amount(say("plan.ttft"), "ttft", (0.05, 10.0), 2.0, 0.05, format="%.2f s")
        tpot = state.amount(say("plan.tpot"), "tpot", (5.0, 200.0), 50.0, 1.0, format="%.0f ms")
        share = state.amount(
            say("plan.attainment"), "share", (50.0, 100.0), 95.0, 0.5, format="%.1f %%"
        )
        headroom = state.amount(
            say("plan.headroom"), "headroom", (0.0, 100.0), 0.0, 5.0, format="%.0f %%"
        )
    with three:
        known = [load_gpu(name).name for name in GPUS]
        gpus = state.picks(say("plan.gpus"), "gpu", gpu_names(), default=known)
        sizes = state.picks(say("plan.tensor_parallel"), "tp", SIZES, default=SIZES[:3])
        commitment = state.pick(say("plan.commitment"), "commitment", COMMITMENTS)
        prices = state.typed(say("plan.prices"), "prices", help=say("plan.prices_help"))
    if trace is None or not gpus or not sizes:
        st.info(say("plan.incomplete"), icon=":material/checklist:")
        return None
    return Wish(
        trace, model, tuple(gpus), ttft, tpot / 1e3, share / 100, headroom / 100, traffic,
        int(limit), tuple(map(int, sizes)), 128, commitment, prices,
    )  # fmt: skip


def answered(desk: Desk, question: Question) -> None:
    """The plan of a question: first the fleets, then what lies around them; progress meanwhile."""
    first, whole = started(question)
    if not whole.is_over:
        progress(desk, first, whole, first.is_over)
    if whole.is_over or first.is_over:
        show(desk, (whole if whole.is_over else first).result)


@st.fragment(run_every=1.0)
def progress(desk: Desk, first: Job[PlanData], whole: Job[PlanData], fleets_known: bool) -> None:
    """How far it is; the page is shown anew when there is more to see."""
    if whole.is_over or first.is_over != fleets_known:
        st.rerun()
    job = whole if first.is_over else first
    step = desk.say("plan.step", step=job.step or "…", count=quantity(job.count))
    st.progress(job.count / (job.count + 25), step)


def started(question: Question) -> tuple[Job[PlanData], Job[PlanData]]:
    """The jobs of a question: fleets alone, and everything; those of the question before it end."""
    name = question.hash(None) + question.trace
    before = st.session_state.get("planning")
    if before not in (None, name):
        for kind in ("fleets", "whole"):
            old = jobs().get(f"{kind}:{before}")
            if old is not None:
                old.stop()
    st.session_state["planning"] = name
    archive = scratch() / "replays"
    first = jobs().start(f"fleets:{name}", planner(question, archive, explore=False))
    whole = jobs().start(f"whole:{name}", planner(question, archive, explore=True))
    return first, whole


def show(desk: Desk, plan: PlanData) -> None:
    """The answer and what it rests on."""
    say, best = desk.say, plan.best
    st.caption(say("plan.objective", objective=plain(say.translated("; ".join(plan.objective))), times=plain(say.translated(plan.cost_model)), replays=plan.replays))  # fmt: skip
    if best is None:
        st.warning(say("plan.none", most=plan.max_gpus), icon=":material/block:")
    else:
        answer(desk, plan)
    refusals(desk, plan)
    if best is None:
        return
    left, right = st.columns(2)
    with left:
        draw(figures.cost_figure(plan, say), "costs")
    with right:
        draw(figures.frontier_figure(plan, say), "frontier")
    seen = plan.exploration
    if seen is not None:
        left, right = st.columns(2)
        with left:
            draw(figures.pareto_figure(plan, seen, say), "pareto")
        with right:
            draw(figures.sizes_figure(plan, seen, say), "sizes")
        st.caption(say("plan.pareto_help"))
        draw(figures.sensitivity_figure(plan, seen, say), "sensitivity")
        st.caption(say("plan.sensitivity_help"))
        limits(desk, seen)
    table(desk, plan)
    grounds(desk, plan)


def answer(desk: Desk, plan: PlanData) -> None:
    """The recommended fleet, and what means would have said of it."""
    say, best = desk.say, plan.best
    assert best is not None
    tell = st.success if best.met else st.warning
    tell(
        say(
            "plan.answer",
            fleet=plain(say.translated(best.fleet)),
            hour=plain(dollars(best.usd_per_hour)),
            month=plain(dollars(best.usd_per_month)),
            share=percent(best.attainment, 2),
        ),
        icon=":material/verified:",
    )
    if best.by_means is None:
        st.info(say("plan.means_none"), icon=":material/calculate:")
    else:
        said = best.by_means
        text = say("plan.means_said", gpus=said.gpus, share=percent(said.attainment, 1), needed=best.gpus)  # fmt: skip
        st.info(text, icon=":material/calculate:")


def limits(desk: Desk, seen: Exploration) -> None:
    """How far the recommended fleet is from each limit, as asked about and in worse worlds."""
    if not seen.objectives:
        return
    say, told = desk.say, desk.say.translated
    titles, rows = margins.table(seen.objectives)
    st.subheader(say("plan.limits"))
    shown = [
        {
            told(title): told(cell) if isinstance(cell, str) else cell
            for title, cell in zip(titles, row.cells, strict=True)
        }
        for row in rows
    ]
    listed(shown, {told("margin"): "percent"})
    st.caption(say("plan.limits_help"))


def refusals(desk: Desk, plan: PlanData) -> None:
    """GPU types that no fleet makes good enough."""
    for each in plan.refused:
        reason = plain(desk.say.translated(each.reason))
        st.caption(desk.say("plan.refused", gpu=each.gpu, reason=reason))


def table(desk: Desk, plan: PlanData) -> None:
    """All candidates in figures."""
    say = desk.say
    rows = [
        {
            say("column.gpu"): each.gpu,
            "TP": each.tensor_parallel_size,
            say("column.replicas"): each.replicas,
            say("column.gpus"): each.gpus,
            say("column.usd_per_hour"): each.usd_per_hour,
            say("plan.column_month"): each.usd_per_month,
            say("column.usd_per_million"): each.usd_per_million_output_tokens,
            say("plan.column_share"): each.attainment,
            say("plan.column_means"): each.by_means.gpus if each.by_means else None,
            say("plan.column_rate"): each.highest_request_rate,
            "kW": each.energy.kilowatts if each.energy else None,
            say("column.price"): each.price.line,
        }
        for each in plan.candidates
    ]
    formats = {
        say("column.usd_per_hour"): "dollar",
        say("plan.column_month"): "$%,.0f",
        say("column.usd_per_million"): "dollar",
        say("plan.column_share"): "percent",
        say("plan.column_rate"): "%.3g",
        "kW": "%.2f",
    }
    listed(rows, formats)


def grounds(desk: Desk, plan: PlanData) -> None:
    """Command lines, assumptions, warnings and the plan's name."""
    say, best = desk.say, plan.best
    assert best is not None
    for warning in plan.warnings:
        st.caption(f":material/warning: {plain(say.translated(warning))}")
    with st.expander(say("plan.commands"), icon=":material/terminal:"):
        for line in (best.vllm, best.sglang, plan.command):
            st.code(line, language="bash", wrap_lines=True)
    with st.expander(say("plan.assumptions"), icon=":material/fact_check:"):
        for text in plan.assumptions:
            st.markdown(f"- {plain(say.translated(text))}")
        st.caption(say("plan.hash", hash=plan.hash))
