"""A plan on the console."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from kvsim.planning import margins
from kvsim.planning.answer import ByMeans, Candidate, Exploration, Plan
from kvsim.planning.sensitivity import Effect

COLUMNS = (
    "GPU",
    "TP",
    "replicas",
    "GPUs",
    "$/hour",
    "$/month",
    "$/1M out",
    "$/1M all",
    "$/1k good",
    "kW",
    "kg CO2/mo",
    "attained",
    "busy",
    "bottleneck",
    "max req/s",
)


def print_plan(plan: Plan, console: Console) -> None:
    """The answer, the ranked table, what means would have said, and what to run."""
    console.print(headline(plan), style="bold", highlight=False)
    console.print(
        f"objective: {'; '.join(plan.question.objective.texts)}; {plan.cost_label} times; "
        f"{plan.trials} replays",
        highlight=False,
    )
    if plan.candidates:
        console.print()
        console.print(ranking(plan), highlight=False)
    for refused in plan.refused:
        console.print(
            f"{refused.market.gpu.name}: {refused.reason}", highlight=False, soft_wrap=True
        )
        if refused.by_means is not None:
            _print_means(refused.by_means, None, console)
    for candidate in plan.candidates:
        details(candidate, plan, console)
    if plan.exploration is not None:
        explored(plan, plan.exploration, console)
    for warning in plan.warnings:
        console.print(f"warning: {warning}", style="yellow", highlight=False, soft_wrap=True)
    console.print(f"hash {plan.hash}", style="dim", highlight=False)


def headline(plan: Plan) -> str:
    """The answer in one line."""
    if not plan.candidates:
        return f"no fleet of up to {plan.question.max_gpus} GPUs meets the objective"
    best = plan.candidates[0]
    missed = "" if best.outcome.met else "objective missed: "
    return (
        f"{missed}{fleet(best)}: ${best.usd_per_hour:,.2f} an hour, ${best.usd_per_month:,.0f} a month, "
        f"{best.outcome.attainment:.2%} of requests within all limits"
    )


def fleet(candidate: Candidate) -> str:
    """A fleet in words."""
    found, bill = candidate.fleet, candidate.fleet.bill
    spare = f", {bill.gpus_billed} billed" if bill.gpus_billed > bill.gpus_needed else ""
    return (
        f"{bill.gpus_needed} x {candidate.market.gpu.name} "
        f"({plural(found.replicas, 'replica')} of {found.placement.shards}{spare})"
    )


def plural(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def ranking(plan: Plan) -> Table:
    """One line for each GPU type that can."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("GPU", "bottleneck") else "right")
    for candidate in plan.candidates:
        table.add_row(*_cells(candidate, plan))
    return table


def _cells(candidate: Candidate, plan: Plan) -> list[str]:
    summary = candidate.outcome.summary or {}
    costs, energy, rate = candidate.costs, candidate.energy, candidate.highest_rate
    found = candidate.fleet
    return [
        candidate.market.gpu.name,
        str(found.placement.tensor_parallel_size),
        str(found.replicas),
        str(found.bill.gpus_needed),
        f"{candidate.usd_per_hour:,.2f}",
        f"{candidate.usd_per_month:,.0f}",
        _dollars(costs.per_million_output_tokens),
        _dollars(costs.per_million_tokens),
        _dollars(costs.per_thousand_good_requests),
        "-" if energy is None else f"{energy.kilowatts:.1f}",
        "-"
        if energy is None or energy.co2_kg_per_month is None
        else f"{energy.co2_kg_per_month:,.0f}",
        f"{candidate.outcome.attainment:.2%}",
        f"{summary.get('busy_fraction', 0):.0%}",
        str(summary.get("verdict")),
        "-" if rate is None else f"{rate * plan.traffic.rate:.2f}",
    ]


def _dollars(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:,.2f}"


def details(candidate: Candidate, plan: Plan, console: Console) -> None:
    """Price, mean sizing and command lines of a candidate."""
    console.print()
    console.print(candidate.market.gpu.name, style="bold", highlight=False)
    console.print(f"  price    {price_line(candidate)}", highlight=False, soft_wrap=True)
    times = (candidate.outcome.summary or {}).get("cost_model")
    console.print(f"  times    {times}", highlight=False)
    _print_means(candidate.by_means, candidate.fleet.bill.gpus_needed, console)
    for engine, line in (("vLLM", candidate.commands.vllm), ("SGLang", candidate.commands.sglang)):
        console.print(f"  {engine:<8} {line}", highlight=False, soft_wrap=True, markup=False)
    for note in candidate.commands.notes:
        console.print(f"  note     {note}", highlight=False, soft_wrap=True)


def price_line(candidate: Candidate) -> str:
    """Where the price comes from."""
    if candidate.market.quote is None:
        assert candidate.owned is not None
        capital, staff, power = candidate.owned
        return f"owned: ${capital:.3f} capital + ${staff:.3f} staff + ${power:.3f} power a GPU-hour"
    bill = candidate.fleet.bill
    listed = candidate.market.quote.price_of(bill.offer)
    units = f"{bill.instances} x {bill.offer.name}" if bill.offer.gpus else bill.offer.name
    return (
        f"{units}, ${listed.usd_per_gpu_hour:g} a GPU-hour, {listed.kind}, {listed.region}, "
        f"{listed.date or 'undated'} ({listed.source}; {candidate.market.quote.note})"
    )


def _print_means(seen: ByMeans | None, needed: int | None, console: Console) -> None:
    if seen is None:
        text = "  means    even the mean request misses the objective"
    else:
        text = (
            f"  means    mean-based sizing says {plural(seen.gpus, 'GPU')}, serving "
            f"{seen.outcome.attainment:.1%} of requests within all limits{beside(seen.gpus, needed)}"
        )
    console.print(text, highlight=False, soft_wrap=True)


def beside(said: int, needed: int | None) -> str:
    """How many GPUs are needed, next to how many means said; nothing where none is enough."""
    if needed is None:
        return ""
    if needed == said:
        return "; as many are needed"
    return f"; needed: {needed}, {abs(needed - said)} {'more' if needed > said else 'fewer'}"


def explored(plan: Plan, seen: Exploration, console: Console) -> None:
    """Sizes, knee and sensitivity of the recommended fleet."""
    best = plan.candidates[0].fleet
    size = best.placement.gpus
    curve = ", ".join(f"{count * size}: {o.attainment:.1%}" for count, o in seen.sizes)
    beyond = "at least " if seen.knee == seen.loads[-1] else ""
    console.print()
    console.print(
        f"share of requests within all limits, by GPUs: {curve}", highlight=False, soft_wrap=True
    )
    console.print(
        f"knee (highest throughput per mean response time): {beyond}"
        f"{seen.knee.traffic * plan.traffic.rate:.2f} requests/s",
        highlight=False,
    )
    rate = plan.traffic.rate * (1 + plan.question.headroom)
    console.print(f"recommended fleet under {rate:.2f} requests/s:", highlight=False)
    console.print(standing(seen), highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("if")
    for name in ("GPUs", "$/month"):
        table.add_column(name, justify="right")
    for name in ("recommended fleet", "then"):
        table.add_column(name)
    for effect in seen.effects:
        month = "-" if effect.usd_per_month is None else f"{effect.usd_per_month:,.0f}"
        holds = "holds" if effect.holds else "misses"
        needed = str(effect.gpus or "-")
        table.add_row(effect.case.label, needed, month, holds, verdict(effect, plan))
    console.print(table, highlight=False)


def standing(seen: Exploration) -> Table:
    """How far the recommended fleet is from each limit."""
    titles, rows = margins.table(seen.standings)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, justify="left" if title == "objective" else "right")
    for name, limit, value, margin, cases in rows:
        left = "" if margin is None else f"{margin:z.1%}"
        table.add_row(name, limit, value, left, *cases)
    return table


def verdict(effect: Effect, plan: Plan) -> str:
    """What a changed assumption does to the answer."""
    if not effect.changes:
        return "same answer"
    if effect.winner is None:
        return f"nothing up to {plan.question.max_gpus} GPUs is enough"
    if effect.winner != plan.candidates[0].market.gpu.name:
        return f"{effect.winner} is cheaper"
    return "fewer are enough" if effect.holds else "more are needed"
