"""The first screen about a plan: the answer, its cost and its risk."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from kvsim.planning.margins import Reading, Standing, amount, limit
from kvsim.reporting.document import Point, Summary, Tile
from kvsim.reporting.forms import cents, dollars, fine_share, number, plain, share
from kvsim.reporting.plan_data import Candidate, Effect, PlanData


def summary(plan: PlanData) -> Summary:
    """Answer, cost and risk."""
    best = plan.best
    if best is None:
        return Summary(
            headline=f"No fleet of up to {plan.max_gpus} GPUs meets the objective",
            tone="bad",
            points=(
                Point("Answer", f"Asked: {plain('; '.join(plan.objective))}."),
                Point("Cost", "None: there is nothing to buy."),
                Point("Risk", " ".join(f"{one.gpu}: {one.reason}." for one in plan.refused)),
            ),
            warnings=tuple(plan.warnings),
        )
    return Summary(
        headline=headline(best),
        tone="good" if best.met else "bad",
        points=(
            Point("Answer", answer(plan, best)),
            Point("Cost", price(plan, best)),
            Point("Risk", risk(plan)),
        ),
        tiles=tuple(tiles(plan, best)),
        warnings=tuple(plan.warnings),
    )


def headline(best: Candidate) -> str:
    """The answer in one line."""
    bought = f"{best.gpus} × {best.gpu}, {dollars(best.usd_per_month)} a month"
    return bought if best.met else f"Objective missed with {bought}"


def answer(plan: PlanData, best: Candidate) -> str:
    """What is recommended, and why not fewer."""
    said = [
        f"Asked: {plain('; '.join(plan.objective))}. Replaying the trace on {best.fleet}, "
        f"{fine_share(best.attainment or 0)} of requests stay within all limits."
    ]
    if best.by_means is not None:
        fewer = best.by_means
        said.append(
            f"Sizing by means would have said {fewer.gpus} of these GPUs, which keep "
            f"{share(fewer.attainment)} of requests within the limits."
        )
    return " ".join(said)


def price(plan: PlanData, best: Candidate) -> str:
    """What it costs, and the next cheapest."""
    said = [
        f"{dollars(best.usd_per_month)} a month ({cents(best.usd_per_hour)} an hour). "
        f"{best.price.line}."
    ]
    if len(plan.candidates) > 1:
        other = plan.candidates[1]
        more = other.usd_per_month / best.usd_per_month - 1
        said.append(f"Next: {other.gpus} × {other.gpu}, {more:+z.0%}.")
    return " ".join(said)


def risk(plan: PlanData) -> str:
    """What would change the answer."""
    times = f"Iteration times are {plan.cost_model}, taken to be right within ±{plan.calibration_error:.0%}."
    if plan.exploration is None:
        return f"Sensitivity was not examined. {times}"
    times = f"{nearest(plan.exploration.objectives)}{times}"
    risky = [one for one in plan.exploration.sensitivity if one.changes_the_answer]
    if not risky:
        return f"None of the changed assumptions below changes the answer. {times}"
    said = "; ".join(changed(one, plan.candidates[0].gpu) for one in risky)
    return f"The answer would be another one with: {said}. {times}"


def nearest(objectives: Sequence[Standing]) -> str:
    """The objective that has the least left to its limit in any of the worlds, and how little."""
    worst_of = [(min(one.readings, key=left), one) for one in objectives]
    worst, one = min(worst_of, key=lambda pair: left(pair[0]), default=(None, None))
    if worst is None or one is None or worst.value is None:
        return ""
    then = f"; {amount(one.unit, worst)} if: {worst.case}" if worst != one.now else ""
    now = f"{amount(one.unit, one.now)} of {limit(one)}"
    return f"Nearest to its limit: {plain(one.objective)}, {now}{then}. "


def left(reading: Reading) -> float:
    """What is left to a limit."""
    return inf if reading.margin is None else reading.margin


def changed(one: Effect, gpu: str) -> str:
    """A changed assumption, and what is cheapest or what the recommended GPU type costs then."""
    if one.cheapest_gpu not in (None, gpu):
        return f"{one.case} ({one.cheapest_gpu} is cheaper)"
    if one.gpus is None or one.usd_per_month is None:
        return f"{one.case} (no number of them is enough)"
    return f"{one.case} ({one.gpus} GPUs, {dollars(one.usd_per_month)} a month)"


def tiles(plan: PlanData, best: Candidate) -> list[Tile]:
    """Numbers to remember."""
    found = [Tile(dollars(best.usd_per_month), "a month")]
    per = best.usd_per_million_output_tokens
    if per is not None:
        found.append(Tile(cents(per), "per million output tokens"))
    good = best.usd_per_thousand_good_requests
    if good is not None:
        found.append(Tile(cents(good), "per 1,000 requests within the limits"))
    if best.highest_request_rate is not None:
        found.append(
            Tile(
                f"{number(best.highest_request_rate)}/s",
                f"highest rate that meets the objective; the trace has {number(plan.trace.request_rate)}/s",
            )
        )
    return found
