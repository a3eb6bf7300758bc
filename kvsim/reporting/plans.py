"""The report on a plan: how many of which GPUs, what they cost, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsim.analysis.economics import HOURS_PER_MONTH
from kvsim.reporting import money, plan_charts, plan_risk, resources, service, trust
from kvsim.reporting.document import (
    Cell,
    Code,
    Column,
    Document,
    Figure,
    Paragraph,
    Section,
    Table,
    bullets,
    section,
    sections,
    sentences,
)
from kvsim.reporting.forms import number
from kvsim.reporting.plan_data import ByMeans, Candidate, Exploration, PlanData
from kvsim.reporting.plan_screen import summary
from kvsim.reporting.workload import workload

if TYPE_CHECKING:
    from kvsim.runs import RunResult


def of_plan(plan: PlanData, run: RunResult | None) -> Document:
    """The document of a plan; ``run`` is that of the recommended fleet, with its tables."""
    seen = plan.exploration
    return Document(
        title=f"GPUs for {plan.model} on {plan.trace.name}",
        facts=(
            f"prices as of {plan.as_of}",
            f"kvsim {plan.kvsim_version}",
            f"plan {plan.hash[:12]}",
        ),
        summary=summary(plan),
        sections=sections(
            alternatives(plan),
            cost(plan),
            means(plan),
            traffic(plan, run),
            service.latency_of_one(run, plan.limits) if run else None,
            resources.use_of_one(run) if run else None,
            scale(plan, seen) if seen else None,
            trade(plan, seen) if seen else None,
            plan_risk.margin(plan, seen) if seen else None,
            plan_risk.sensitivity(plan, seen) if seen else None,
            deployment(plan),
            assumptions(plan, run),
            section(
                "Reproduce",
                Code(plan.command),
                Paragraph(
                    f"{plan.replays} replays. Plan hash {plan.hash}: same question, same trace, same "
                    "kvsim, same answer."
                ),
            ),
            section("Sign-off", Table(tuple(map(Column, SIGNED)), SIGNATURES)),
        ),
    )  # fmt: skip


SIGNED = ("", "name", "date", "signature")
SIGNATURES = (("Prepared by", "", "", ""), ("Approved by", "", "", ""))


def alternatives(plan: PlanData) -> Section | None:
    """The cheapest fleet of each GPU type, and those that cannot."""
    columns = (
        Column("GPU"),
        Column("TP", "count"),
        Column("replicas", "count"),
        Column("GPUs", "count"),
        Column("$/month", "dollars"),
        Column("$/1M out", "cents"),
        Column("within limits", "fine share"),
        Column("max req/s", "number"),
        Column("busy", "share"),
        Column("bottleneck"),
        Column("times"),
    )
    rows = tuple(
        (
            one.gpu,
            one.tensor_parallel_size,
            one.replicas,
            one.gpus,
            one.usd_per_month,
            one.usd_per_million_output_tokens,
            one.attainment,
            one.highest_request_rate,
            one.busy_fraction,
            one.verdict,
            one.cost_model,
        )
        for one in plan.candidates
    )
    table = Table(columns, rows, best=0 if len(rows) > 1 else None) if rows else None
    refused = [f"{one.gpu} cannot: {one.reason}" for one in plan.refused]
    return section("Alternatives", table, bullets(refused))


def cost(plan: PlanData) -> Section | None:
    """Dollars, what they are spent on, where the prices come from; energy."""
    if not plan.candidates:
        return None
    rows = tuple((one.gpu, *_costs(one)) for one in plan.candidates)
    owned = plan.candidates[0].price.usd_per_gpu_hour is None
    prices = [f"{one.gpu}: {one.price.line}" for one in plan.candidates]
    return section(
        "Cost breakdown",
        Table((Column("GPU"), *money.COLUMNS), rows, best=0 if len(rows) > 1 else None),
        money.breakdown([spending(one) for one in plan.candidates]),
        bullets(prices if owned else [*prices, money.RENTED]),
    )


def _costs(one: Candidate) -> money.Costs:
    return money.Costs(
        one.gpus,
        one.gpus_billed,
        one.usd_per_hour,
        one.usd_per_month,
        one.usd_per_million_output_tokens,
        one.usd_per_million_tokens,
        one.usd_per_thousand_good_requests,
        *money.drawn(one.energy),
    )


def spending(one: Candidate) -> money.Spending:
    """What a month of a candidate is spent on."""
    name = f"{one.gpus} × {one.gpu}"
    if one.price.usd_per_gpu_hour is not None:
        used = money.Use(one.gpus, one.gpus_billed, one.busy_fraction or 0.0)
        return money.rented(name, one.usd_per_month, used)
    hours = one.gpus_billed * HOURS_PER_MONTH
    parts = {"capital": one.price.capital, "staff": one.price.staff, "power": one.price.power}
    return money.Spending(name, {what: hours * (usd or 0.0) for what, usd in parts.items()})


def means(plan: PlanData) -> Section | None:
    """Mean-based sizing beside what was needed."""
    columns = (
        Column("GPU"),
        Column("GPUs by means", "count"),
        Column("within limits on these", "share"),
        Column("GPUs needed", "count"),
        Column("times as many", "times"),
    )
    rows = (
        *(_means(one.gpu, one.by_means, one.gpus) for one in plan.candidates),
        *(_means(one.gpu, one.by_means, "none is enough") for one in plan.refused),
    )
    said = (
        "A calculator that knows only means (mean prompt, mean answer, mean rate) sees no queue, no burst "
        "and no long prompt. A dash: the mean request alone misses a limit, or the model does not fit."
    )
    return section("What mean-based sizing would have said", Paragraph(said), Table(columns, rows))


def _means(gpu: str, seen: ByMeans | None, needed: Cell) -> tuple[Cell, ...]:
    if seen is None:
        return gpu, None, None, needed, None
    return gpu, seen.gpus, seen.attainment, needed, seen.needed_by_said


def traffic(plan: PlanData, run: RunResult | None) -> Section | None:
    """The trace."""
    if run is not None:
        return workload(plan.trace.name, plan.trace.sha256, run.requests)
    seen = plan.trace
    return section(
        "Workload",
        Paragraph(
            f"{seen.name}: {seen.requests:,} requests in {seen.span_s:,.0f} s "
            f"({number(seen.request_rate)} a second), mean prompt {seen.mean_prompt_tokens:,.0f} tokens, "
            f"mean answer {seen.mean_output_tokens:,.0f} tokens. SHA-256 of the trace: {seen.sha256}."
        ),
    )


def scale(plan: PlanData, seen: Exploration) -> Section | None:
    """Fleets of other sizes, and other traffic."""
    assert plan.best is not None
    highest = plan.best.highest_request_rate
    sustained = f"up to {number(highest)} requests a second" if highest else "at no rate"
    beyond = "or beyond " if seen.knee_is_last_load else ""
    return section(
        "How many, and how much more",
        sizes(plan.best, seen),
        Figure(
            "scale",
            "Requests within all limits by the size of the fleet, and by traffic for the recommended fleet. "
            "Each point is a replay of the whole trace.",
            plan_charts.scale(plan, plan.best, seen),
        ),
        Paragraph(
            f"The recommended fleet meets the objective {sustained}. Its knee, where throughput by mean "
            f"response time is highest, is at {beyond}{number(seen.knee_request_rate)}."
        ),
    )


def sizes(best: Candidate, seen: Exploration) -> Table:
    """Fleets of other sizes, the recommended one marked."""
    columns = (
        Column("GPUs", "count"),
        Column("replicas", "count"),
        Column("within all limits", "share"),
        Column("TTFT p99, ms", "ms"),
        Column("TPOT p99, ms", "ms"),
        Column("busy", "share"),
    )
    rows = tuple(
        (
            one.gpus,
            one.replicas,
            one.attainment,
            one.p99_ttft_ms,
            one.p99_tpot_ms,
            one.busy_fraction,
        )
        for one in seen.sizes
    )
    chosen = [i for i, one in enumerate(seen.sizes) if one.gpus == best.gpus]
    return Table(columns, rows, best=chosen[0] if chosen else None)


def trade(plan: PlanData, seen: Exploration) -> Section | None:
    """What a user sees against what a GPU gives and costs."""
    assert plan.best is not None
    panels = plan_charts.trade(plan, plan.best, seen)
    caption = (
        "What a user sees against what a GPU gives, and against dollars. The line is the recommended fleet "
        "under growing traffic (requests a second at each point); a diamond is another GPU type's fleet under "
        "the trace."
    )
    return section("Cost and speed", Figure("pareto", caption, panels) if panels else None)


def deployment(plan: PlanData) -> Section | None:
    """The command lines."""
    best = plan.best
    if best is None:
        return None
    return section("What to run", Code(best.vllm), Code(best.sglang), sentences(best.notes))


def assumptions(plan: PlanData, run: RunResult | None) -> Section | None:
    """What a reader accepts, and within what times were measured."""
    labels = dict.fromkeys(one.cost_model for one in plan.candidates if one.cost_model)
    load = trust.load_of(run) if run else None
    domain = [text for label in labels for text in trust.calibration(label, load)]
    return section("Assumptions and calibration", sentences([*domain, *plan.assumptions]))
