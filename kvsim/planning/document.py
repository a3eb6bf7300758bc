"""A plan as plain data: what ``--json`` prints and what the reports are written from."""

from __future__ import annotations

from dataclasses import asdict

from kvsim import __version__
from kvsim.analysis.economics import Energy
from kvsim.planning.answer import ByMeans, Candidate, Exploration, Plan, Refused
from kvsim.planning.drive import CONTENDER_LIMIT
from kvsim.planning.prices import named
from kvsim.planning.search import Placement
from kvsim.planning.sensitivity import Effect
from kvsim.planning.trial import Outcome

Document = dict[str, object]

SCHEMA_VERSION = 1
"""Of the document; a reader refuses any other."""
SHOWN = ("mean", "p50", "p99")
"""Statistics of latencies that a plan repeats from the summary of a run."""


def document(plan: Plan, command: str) -> Document:
    """Everything about a plan; ``command`` repeats it."""
    question = plan.question
    return {
        "schema_version": SCHEMA_VERSION,
        "answer": candidate(plan.candidates[0], plan) if plan.candidates else None,
        "objective": question.objective.texts,
        "limits": question.objective.limits,
        "attainment_needed": question.objective.attainment,
        "max_gpus": question.max_gpus,
        "model": question.scenario.model,
        "trace": traffic(plan),
        "candidates": [candidate(each, plan) for each in plan.candidates],
        "refused": [refused(each) for each in plan.refused],
        "exploration": None if plan.exploration is None else exploration(plan, plan.exploration),
        "assumptions": assumptions(plan),
        "warnings": list(plan.warnings),
        "cost_model": plan.cost_label,
        "calibration_error": plan.calibration,
        "replays": plan.trials,
        "kvsim_version": __version__,
        "as_of": question.as_of.isoformat(),
        "hash": plan.hash,
        "command": command,
    }


def traffic(plan: Plan) -> Document:
    """The trace."""
    seen = plan.traffic
    return {
        "name": seen.name,
        "sha256": seen.sha256,
        "requests": seen.requests,
        "span_s": seen.span,
        "request_rate": seen.rate,
        "mean_prompt_tokens": seen.mean_prompt,
        "mean_output_tokens": seen.mean_output,
        "headroom": plan.question.headroom,
    }


def placement(where: Placement) -> Document:
    """How a replica is set up."""
    return {
        "gpu": where.gpu,
        "tensor_parallel_size": where.tensor_parallel_size,
        "pipeline_parallel_size": where.pipeline_parallel_size,
        "max_num_batched_tokens": where.max_num_batched_tokens,
    }


def candidate(each: Candidate, plan: Plan) -> Document:
    """A GPU type that can serve the trace."""
    fleet, bill, costs = each.fleet, each.fleet.bill, each.costs
    rate = each.highest_rate
    return {
        **placement(fleet.placement),
        "replicas": fleet.replicas,
        "gpus": bill.gpus_needed,
        "gpus_billed": bill.gpus_billed,
        "usd_per_hour": each.usd_per_hour,
        "usd_per_month": each.usd_per_month,
        "usd_per_million_output_tokens": costs.per_million_output_tokens,
        "usd_per_million_tokens": costs.per_million_tokens,
        "usd_per_thousand_good_requests": costs.per_thousand_good_requests,
        **reached(each.outcome),
        "highest_request_rate": None if rate is None else rate * plan.traffic.rate,
        "energy": None if each.energy is None else power(each.energy),
        "price": price(each),
        "by_means": means(each.by_means, bill.gpus_needed),
        "vllm": each.commands.vllm,
        "sglang": each.commands.sglang,
        "notes": list(each.commands.notes),
    }


def reached(outcome: Outcome) -> Document:
    """What a replay has shown."""
    summary = outcome.summary
    if summary is None:
        return {"met": outcome.met, "attainment_at_most": outcome.attainment}
    keys = [f"{s}_{name}_ms" for name in ("ttft", "tpot", "e2el") for s in SHOWN]
    keys += ["busy_fraction", "verdict", "verdict_evidence", "overloaded", "num_rejected"]
    keys += ["request_throughput", "request_goodput", "output_throughput"]
    keys += ["peak_kv_cache_usage", "prefix_cache_hit_rate", "cost_model"]
    chosen = {key: summary.get(key) for key in keys}
    return {"met": outcome.met, "attainment": outcome.attainment, **chosen}


def power(seen: Energy) -> Document:
    """Energy of a fleet."""
    return {**seen._asdict(), "kwh_per_hour": seen.kilowatts}


def price(each: Candidate) -> Document:
    """Where the dollars come from."""
    if each.market.quote is None:
        assert each.owned is not None
        return {"offer": "owned", "note": "owned hardware", **each.owned._asdict()}
    listed = each.market.quote.price_of(each.fleet.bill.offer)
    return {
        "offer": named(listed),
        "instances": each.fleet.bill.instances,
        "gpus_per_instance": listed.gpus,
        "usd_per_gpu_hour": listed.usd_per_gpu_hour,
        "region": listed.region,
        "commitment": listed.kind,
        "date": listed.date,
        "verified": listed.verified,
        "source": listed.source,
        "note": each.market.quote.note,
    }


def means(seen: ByMeans | None, needed: int | None) -> Document | None:
    """What mean-based sizing would have said, and how far off it is."""
    if seen is None:
        return None
    return {
        **placement(seen.placement),
        "gpus": seen.gpus,
        "replicas": seen.sizing.replicas,
        "attainment": seen.outcome.attainment,
        "needed_by_said": None if needed is None else needed / seen.gpus,
        "batch": seen.sizing.batch,
        "prefill_s": seen.sizing.prefill,
        "step_s": seen.sizing.step,
    }


def refused(each: Refused) -> Document:
    """A GPU type that cannot."""
    return {
        "gpu": each.market.gpu.name,
        "reason": each.reason,
        "by_means": means(each.by_means, None),
    }


def exploration(plan: Plan, seen: Exploration) -> Document:
    """The neighbourhood of the answer."""
    rate = plan.traffic.rate
    size = plan.candidates[0].fleet.placement.gpus
    return {
        "sizes": [
            {"replicas": count, "gpus": count * size, **reached(outcome)}
            for count, outcome in seen.sizes
        ],
        "loads": [
            {"request_rate": load.traffic * rate, **reached(load.outcome)} for load in seen.loads
        ],
        "knee_request_rate": seen.knee.traffic * rate,
        "knee_is_last_load": seen.knee == seen.loads[-1],
        "objectives": [asdict(standing) for standing in seen.standings],
        "sensitivity": [sensitivity(effect) for effect in seen.effects],
    }


def sensitivity(seen: Effect) -> Document:
    """One changed assumption."""
    return {
        "factor": seen.case.factor,
        "case": seen.case.label,
        "replicas": seen.replicas,
        "gpus": seen.gpus,
        "usd_per_month": seen.usd_per_month,
        "cheapest_gpu": seen.winner,
        "changes_the_answer": seen.changes,
        "recommended_fleet_holds": seen.holds,
    }


def assumptions(plan: Plan) -> list[str]:
    """What a reader must accept to accept the answer."""
    question = plan.question
    site = question.electricity
    load = "the share of time that engines compute" if site.load is None else f"{site.load:.0%}"
    carbon = (
        "the grid's CO2 is not given, so none is told"
        if site.co2_grams_per_kwh is None
        else f"{site.co2_grams_per_kwh:g} g CO2 per kWh"
    )
    more = f", and fleets are sized for {question.headroom:.0%} more" if question.headroom else ""
    return [
        f"iteration times are {plan.cost_label}; their error is taken as ±{plan.calibration:.0%}",
        f"the traffic is the trace's, {plan.traffic.rate:.3g} requests a second, day and night{more}",
        "a month has 730 hours; instances are paid whole; a replica lies within one instance",
        f"power: the GPUs' design power, without their hosts, for {load}, "
        f"{site.idle_share:.0%} of it otherwise (assumed), PUE "
        f"{site.pue:g}, ${site.usd_per_kwh:.2f} per kWh; {carbon}",
        "rented prices include their electricity; energy is for information"
        if question.owned is None
        else f"owned for {question.owned.years:g} years, used {question.owned.utilisation:.0%} of "
        f"the time, staff ${question.owned.staff_usd_per_gpu_year:,.0f} a GPU and year; an hour of use "
        "bears its share of the unused ones",
        "no spare replicas for failures or rollouts; no start-up times; no network",
        "search: tensor parallel sizes "
        f"{', '.join(map(str, question.tensor_parallel_sizes))}, tokens an iteration "
        f"{', '.join(str(b or 'as the engine takes them') for b in question.budgets)}; placements "
        "that idle engines rule out were not replayed, hopeless replays were stopped early; the "
        "recommended number was replayed to the end of the trace, and the next smaller one fails",
        "mean-based sizing: the mean prompt computed alone, the mean answer in the largest batch "
        "within the limits, at the mean rate; no queue, no bursts, no prefix cache",
        f"sensitivity: the placement stays, the number of replicas is sought anew; GPU types of "
        f"more than {CONTENDER_LIMIT:g} times the cost are left out",
    ]
