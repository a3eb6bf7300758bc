"""The charts that only a plan has: sizes, loads, the trade between speed and cost, sensitivity."""

from __future__ import annotations

from collections.abc import Sequence

from kvsim.reporting.charts import Axis, Curves, Line, Mark, Panels, Swing, Tornado
from kvsim.reporting.forms import Form, number
from kvsim.reporting.plan_data import Candidate, Effect, Exploration, Load, PlanData, Reached

WITHIN = Axis("requests within all limits", "share", most=1.03)


def scale(plan: PlanData, best: Candidate, seen: Exploration) -> Panels:
    """Share of good requests by fleet and by traffic."""
    return Panels((sizes(plan, best, seen), loads(plan, best, seen)), beside=True, height=3.6)


def sizes(plan: PlanData, best: Candidate, seen: Exploration) -> Curves:
    """By the number of GPUs, with what means would have said."""
    shares = [reached(one) for one in seen.sizes]
    lines = [Line("replayed", [one.gpus for one in seen.sizes], shares, "blue", "dots")]
    if best.by_means is not None:
        said, got = best.by_means.gpus, best.by_means.attainment
        lines.append(Line(f"by means: {said}", [said], [got], "orange", "points"))
    marks = [Mark("x", best.gpus, f"recommended: {best.gpus}", "green")]
    if plan.attainment_needed is not None:
        target = f"target {100 * plan.attainment_needed:.4g}%"
        marks.append(Mark("y", plan.attainment_needed, target))
    return Curves(Axis("GPUs", "count"), WITHIN, tuple(lines), tuple(marks))


def loads(plan: PlanData, best: Candidate, seen: Exploration) -> Curves:
    """By requests a second."""
    rates = [one.request_rate for one in seen.loads]
    line = Line("", rates, [reached(one) for one in seen.loads], "blue", "dots")
    now, knee, most = plan.trace.request_rate, seen.knee_request_rate, best.highest_request_rate
    marks = [Mark("x", now, f"the trace: {number(now)}")]
    if most is not None:
        marks.append(Mark("x", most, f"highest: {number(most)}", "green"))
    marks.append(Mark("x", knee, f"knee: {number(knee)}", "orange"))
    return Curves(Axis("requests a second"), WITHIN, (line,), tuple(marks))


def reached(one: Reached) -> float:
    """The share of good requests, of a hopeless replay the most that it could be."""
    known = one.attainment if one.attainment is not None else one.attainment_at_most
    return 0.0 if known is None else known


def trade(plan: PlanData, best: Candidate, seen: Exploration) -> Panels | None:
    """Speed for a user against output of a GPU, and against dollars per million output tokens."""
    known = [one for one in seen.loads if one.speed is not None and one.output_throughput]
    if not known:
        return None
    yields = [(one.output_throughput or 0) / best.gpus for one in known]
    prices = [per_million(best.usd_per_hour, one) for one in known]
    others = [one for one in plan.candidates[1:] if one.speed is not None]
    theirs = [(one.output_throughput or 0) / one.gpus for one in others]
    paid = [one.usd_per_million_output_tokens or 0.0 for one in others]
    panels = (
        _panel("output tokens a second and GPU", "number", known, yields, others, theirs),
        _panel("dollars per million output tokens", "cents", known, prices, others, paid),
    )
    return Panels(panels, beside=True, height=3.8)


def _panel(
    label: str,
    form: Form,
    known: Sequence[Load],
    values: Sequence[float],
    others: Sequence[Candidate],
    theirs: Sequence[float],
) -> Curves:
    notes = tuple(f"{number(one.request_rate)}/s" for one in known)
    speeds = [one.speed or 0.0 for one in known]
    lines = [Line("", speeds, values, "blue", "dots", notes)]
    if others:
        names = tuple(one.gpu.partition("-")[0] for one in others)
        lines.append(
            Line("", [one.speed or 0.0 for one in others], theirs, "orange", "points", names)
        )
    return Curves(Axis("tokens a second that a user sees"), Axis(label, form), tuple(lines))


def per_million(usd_per_hour: float, one: Reached) -> float:
    """Dollars per million output tokens."""
    return usd_per_hour / 3600 / (one.output_throughput or 1.0) * 1e6


def tornado(plan: PlanData, best: Candidate, seen: Exploration) -> Tornado:
    """Dollars a month when an assumption is wrong."""
    factors = dict.fromkeys(one.factor for one in seen.sensitivity)
    cases = [[one for one in seen.sensitivity if one.factor == factor] for factor in factors]
    base = best.usd_per_month
    swings = [_swing(plan, (those[0], those[-1]), base) for those in cases if len(those) > 1]
    swings.sort(key=lambda swing: abs(swing.high - swing.low), reverse=True)
    return Tornado(Axis("dollars a month", "dollars"), base, tuple(swings))


def _swing(plan: PlanData, pair: Sequence[Effect], base: float) -> Swing:
    amount = plan.calibration_error if pair[0].factor == "calibration" else 0.2
    low, high = (base if one.usd_per_month is None else one.usd_per_month for one in pair)
    notes = [f"{one.gpus} GPUs" if one.gpus else "too many" for one in pair]
    name = {"answers": "length of answers", "calibration": "engine's speed"}.get(pair[0].factor)
    return Swing(f"{name or pair[0].factor} ±{amount:.0%}", low, high, *notes)
