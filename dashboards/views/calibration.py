"""Kernels as they were timed on a GPU, and how well what is composed of them predicts."""

from __future__ import annotations

from statistics import median

import streamlit as st

from kvsim.costs.accuracy import Accuracy, accuracies, checks
from kvsim.costs.operators import Profile, load_profile, shipped

from .. import state
from ..evidence import OPERATORS, REPORTS, EngineRun, Timed, timed, validations
from ..figures import calibration as figures
from ..shown import percent, quantity
from ..workspace import Desk
from .parts import draw, listed

MOST_SERIES = 7


def page(desk: Desk) -> None:
    """The page."""
    say = desk.say
    st.title(say("calibration.title"))
    profiles = shipped()
    if profiles:
        name = state.pick(say("calibration.profile"), "profile", profiles)
        kernels(desk, load_profile(name))
    else:
        st.info(say("calibration.no_profile"), icon=":material/speed:")
    engine(desk)


def kernels(desk: Desk, profile: Profile) -> None:
    """The curves of an operator, and the shapes that were held out."""
    say = desk.say
    runs = sorted({f"{run['device']}, {run['date']}" for run in profile.runs})
    st.caption(say("calibration.provenance", gpu=profile.gpu, runs="; ".join(runs)))
    left, right = st.columns(2)
    with left:
        known = [name for name in OPERATORS if name in profile.operators]
        operator = state.pick(say("calibration.operator"), "operator", known, widget=st.segmented_control)  # fmt: skip
        series = timed(profile, operator)
        names = [each.name for each in series]
        chosen = state.picks(say("calibration.shapes"), "shape", names, default=spread(names))
        shown = [each for each in series if each.name in chosen][:MOST_SERIES]
        if shown:
            axes = ", ".join(profile.axes(operator)[:-1])
            draw(figures.curves_figure(shown, operator, say), "curves")
            st.caption(say("calibration.curves_help", axes=axes, best=best(shown)))
    with right:
        held = checks(profile)
        if held:
            draw(figures.accuracy_figure(held, say), "accuracy")
    if held:
        errors(desk, accuracies(profile))


def spread(names: list[str]) -> list[str]:
    """A few of them, from all over the list."""
    count = min(4, len(names))
    return [names[round(i * (len(names) - 1) / max(1, count - 1))] for i in range(count)]


def best(series: list[Timed]) -> str:
    """The largest share of the roofline that is reached."""
    return percent(
        max(b / t for each in series for b, t in zip(each.bound, each.median, strict=True)), 0
    )


def errors(desk: Desk, found: list[Accuracy]) -> None:
    """Errors by operator, as a table."""
    say = desk.say
    rows = [
        {
            say("calibration.operator"): row.operator,
            say("calibration.column_shapes"): row.shapes,
            say("calibration.column_median"): row.median,
            "P95": row.p95,
            say("calibration.column_bias"): row.bias,
        }
        for row in found
    ]
    shares = ("calibration.column_median", "calibration.column_bias")
    listed(rows, dict.fromkeys(("P95", *map(say, shares)), "percent"))


def engine(desk: Desk) -> None:
    """Runs of a real engine: what was predicted, over what was measured."""
    say = desk.say
    st.subheader(say("calibration.engine"))
    runs, problems = validations(REPORTS, desk.runs)
    for problem in problems:
        st.caption(f":material/warning: {desk.told(problem)}")
    if not runs:
        st.info(say("calibration.no_engine", folder=desk.runs.name), icon=":material/science:")
        return
    draw(figures.engine_figure(runs, say), "engine")
    found = [abs(error) for error in all_errors(runs)]
    st.caption(
        say(
            "calibration.engine_help",
            runs=quantity(len(runs)),
            median=percent(median(found)) if found else "–",
            worst=percent(max(found, default=None)),
        )
    )


def all_errors(runs: list[EngineRun]) -> list[float]:
    """Relative errors of all metrics of all runs."""
    errors = [metric.error for run in runs for metric in run.metrics.values()]
    return [error for error in errors if error is not None]
