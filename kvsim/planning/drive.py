"""Asks the searches in their order and puts the answer together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

from kvsim.analysis.economics import (
    Offer,
    Power,
    energy,
    owned_cost,
    unit_costs,
)
from kvsim.catalog import Gpu, load_gpu
from kvsim.compose import trace_options
from kvsim.errors import CapacityError, ConfigError
from kvsim.planning.answer import ByMeans, Candidate, Exploration, Market, Plan, Refused
from kvsim.planning.deployment import commands
from kvsim.planning.pool import Lab
from kvsim.planning.prices import quote
from kvsim.planning.prices import warnings as doubts
from kvsim.planning.question import Question, calibration
from kvsim.planning.search import (
    Bench,
    Fleet,
    Option,
    Placement,
    cheapest_fleet,
    cost,
    given_fleet,
    highest_rate,
    knee,
    loads,
    sizes,
    whole,
)
from kvsim.planning.sensitivity import Case, Contender, Effect, cases, effect, searches
from kvsim.planning.trial import Change, Outcome
from kvsim.planning.unloaded import Engine, Glance, Traffic, survey
from kvsim.workload import open_trace

Told = Callable[[str, int], None]
"""Is told what is being done, and how many replays there were."""

CONTENDER_LIMIT = 2.0
"""Multiple of the cheapest cost from which a GPU type is not sized anew for the sensitivity."""


def plan(question: Question, *, jobs: int = 1, told: Told = lambda what, count: None) -> Plan:
    """Answer a question. CapacityError if no GPU type can hold the model at all."""
    if question.trace == "-":
        raise ConfigError("a plan reads the trace several times, so it cannot be standard input")
    traffic = surveyed(question)
    bench = Bench(question.scenario, question.trace, traffic.requests, question.objective)
    step = ["sizing"]
    with Lab(jobs, lambda count: told(step[0], count)) as lab:
        markets = [market_of(question, gpu) for gpu in dict.fromkeys(map(load_gpu, question.gpus))]
        markets = looked_at(lab, bench, question, traffic, markets)
        step[0] = "searching fleets"
        found = fleets(lab, bench, question, markets)
        step[0] = "checking"
        candidates, refused = judged(lab, bench, question, markets, found)
        labels = cost_labels(markets)
        interval = max(calibration(question, label) for label in labels)
        exploration = None
        if candidates and question.explore:
            step[0] = "exploring"
            candidates = rated(lab, bench, candidates)
            exploration = explored(lab, bench, question, candidates, interval)
        return Plan(
            question,
            traffic,
            tuple(candidates),
            tuple(refused),
            exploration,
            interval,
            " and ".join(labels),
            tuple(warnings(question, markets)),
            lab.trials,
            question.hash(traffic.sha256),
        )


def surveyed(question: Question) -> Traffic:
    """The trace in a few numbers; ConfigError if its requests do not come over time."""
    trace = open_trace(question.trace, trace_options(question.scenario))
    traffic = survey(Path(trace.name).name, trace, trace.sha256())
    if not traffic.span:
        raise ConfigError(
            f"{question.trace}: all requests arrive at once, so there is no rate to plan for; "
            "--request-rate spreads them"
        )
    return traffic


def market_of(question: Question, gpu: Gpu) -> Market:
    """What a GPU type costs."""
    if question.owned is None:
        quoted = quote(gpu, question.preference, question.as_of)
        return Market(gpu, quoted, quoted.offers, ())
    power = site_power(question, gpu)
    price = owned_cost(question.owned.of(gpu), power, 1.0).total
    return Market(gpu, None, (Offer("owned", None, price),), ())


def site_power(question: Question, gpu: Gpu) -> Power:
    """The power of a GPU whose design power must be known."""
    power = question.electricity.power(gpu)
    if power is None:
        raise ConfigError(f"{gpu.name}: its power is not known, so it cannot be owned")
    return power


def looked_at(
    lab: Lab, bench: Bench, question: Question, traffic: Traffic, markets: Sequence[Market]
) -> list[Market]:
    """The markets with every placement glanced at; CapacityError if the model fits nowhere."""
    placements = [
        [Placement(market.gpu.name, size, budget) for size, budget in shapes(question)]
        for market in markets
    ]
    glances = [
        Glance(bench.on(placement), question.trace, traffic, question.objective)
        for group in placements
        for placement in group
    ]
    seen = iter(lab.each(glances))
    looked = [
        market._replace(options=tuple(Option(placement, next(seen)) for placement in group))
        for market, group in zip(markets, placements, strict=True)
    ]
    if not any(option.unloaded.memory for market in looked for option in market.options):
        raise CapacityError(str(looked[0].options[-1].unloaded.refusal))
    return looked


def cost_labels(markets: Sequence[Market]) -> list[str]:
    """Where the iteration times come from, each label once."""
    seen = [option.unloaded for market in markets for option in market.options]
    return list(dict.fromkeys(each.cost_label for each in seen if each.memory is not None))


def shapes(question: Question) -> list[tuple[int, int | None]]:
    """Tensor parallel sizes with token budgets."""
    return list(product(question.tensor_parallel_sizes, question.budgets))


def fleets(
    lab: Lab, bench: Bench, question: Question, markets: Sequence[Market]
) -> list[Fleet | None]:
    """The cheapest fleet of each GPU type, None where there is none; a given size is kept."""
    change, given = Change(traffic=1 + question.headroom), question.replicas
    if given is not None:
        return lab.run([given_fleet(bench, m.options, m.offers, given, change) for m in markets])
    most = question.max_gpus
    return lab.run([cheapest_fleet(bench, m.options, m.offers, most, change) for m in markets])


def judged(
    lab: Lab,
    bench: Bench,
    question: Question,
    markets: Sequence[Market],
    found: Sequence[Fleet | None],
) -> tuple[list[Candidate], list[Refused]]:
    """Whole replays of what was found and of what means would say; cheapest first."""
    good = [(m, fleet) for m, fleet in zip(markets, found, strict=True) if fleet is not None]
    best = min((fleet for _, fleet in good), key=lambda fleet: cost(fleet.bill), default=None)
    outcomes = lab.run([whole(bench, fleet, keep=fleet is best) for _, fleet in good])
    means = dict(zip([m.gpu.name for m in markets], by_means(lab, bench, markets), strict=True))
    candidates = [
        candidate(question, bench, market, fleet, outcome, means[market.gpu.name])
        for (market, fleet), outcome in zip(good, outcomes, strict=True)
    ]
    refused = [
        Refused(market, why_not(question, market), means[market.gpu.name])
        for market, fleet in zip(markets, found, strict=True)
        if fleet is None
    ]
    return sorted(candidates, key=rank), refused


def rank(candidate: Candidate) -> tuple[bool, float, int]:
    """Those that meet the objective (of given size, not all do) first, then by cost."""
    dollars, gpus = round(candidate.usd_per_hour, 4), candidate.fleet.bill.gpus_needed
    return not candidate.outcome.met, dollars, gpus


def by_means(lab: Lab, bench: Bench, markets: Sequence[Market]) -> list[ByMeans | None]:
    """For each GPU type the placement with the fewest GPUs by means, and its replay."""
    chosen = [
        min(sized(market), key=lambda option: option.gpus, default=None) for market in markets
    ]
    replays = lab.run(
        [sizes(bench, option.placement, [option.guess]) for option in chosen if option is not None]
    )
    outcomes = iter(replays)
    return [
        None
        if option is None or option.unloaded.sizing is None
        else ByMeans(option.placement, option.unloaded.sizing, next(outcomes)[0])
        for option in chosen
    ]


def sized(market: Market) -> list[Option]:
    """Placements that means find good enough, with the engine's own token budget."""
    budget = market.options[0].placement.max_num_batched_tokens
    return [
        option
        for option in market.options
        if option.unloaded.sizing is not None and option.placement.max_num_batched_tokens == budget
    ]


def candidate(
    question: Question,
    bench: Bench,
    market: Market,
    fleet: Fleet,
    outcome: Outcome,
    means: ByMeans | None,
) -> Candidate:
    """A found fleet with everything that is derived from its replay."""
    summary = outcome.summary
    assert summary is not None
    busy = summary["busy_fraction"]
    assert isinstance(busy, int | float)
    power = question.electricity.power(market.gpu)
    per_hour, owned = fleet.bill.usd_per_hour, None
    if question.owned is not None:
        owned = owned_cost(question.owned.of(market.gpu), site_power(question, market.gpu), busy)
        per_hour = owned.total * fleet.bill.gpus_billed
    engine = Engine.of(bench.on(fleet.placement, fleet.replicas))
    return Candidate(
        market,
        fleet,
        outcome,
        per_hour,
        owned,
        unit_costs(per_hour, summary),
        None if power is None else energy(power, fleet.bill.gpus_needed, busy),
        commands(engine.scenario, engine.memory, fleet.replicas),
        means,
        None,
    )


def why_not(question: Question, market: Market) -> str:
    """Why no fleet of a GPU type will do: the reason of the placement that comes closest."""
    closest = max(market.options, key=closeness)
    size = closest.placement.tensor_parallel_size
    if closest.unloaded.refusal is not None:
        fits = closest.unloaded.memory is not None
        return f"TP {size}: {closest.unloaded.refusal}" if fits else closest.unloaded.refusal
    if size > question.max_gpus:
        return f"a replica of TP {size} has more GPUs than --max-gpus {question.max_gpus}"
    if not any(offer.gpus is None or offer.gpus >= size for offer in market.offers):
        return f"no offer has the {size} GPUs that one replica needs"
    count = question.replicas or question.max_gpus // size
    return f"not met with {count * size} GPUs, {count} replicas of TP {size}"


def closeness(option: Option) -> tuple[float, int]:
    """Which placement comes closest: by idle engines, then by size."""
    return option.unloaded.attainment, option.placement.tensor_parallel_size


def rated(lab: Lab, bench: Bench, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates with the highest traffic that they sustain."""
    rates = lab.run([highest_rate(bench, candidate.fleet) for candidate in candidates])
    return [
        candidate._replace(highest_rate=rate)
        for candidate, rate in zip(candidates, rates, strict=True)
    ]


def explored(
    lab: Lab,
    bench: Bench,
    question: Question,
    candidates: Sequence[Candidate],
    interval: float,
) -> Exploration:
    """What happens around the recommended fleet."""
    fleet = candidates[0].fleet
    counts = neighbours(fleet.replicas, question.max_gpus // fleet.placement.tensor_parallel_size)
    [outcomes] = lab.run([sizes(bench, fleet.placement, counts)])
    [measured] = lab.run([loads(bench, fleet, candidates[0].highest_rate or 1.0)])
    wanted = cases(interval, 1 + question.headroom)
    effects = effects_of(lab, bench, question, candidates, wanted)
    return Exploration(
        tuple(zip(counts, outcomes, strict=True)), tuple(measured), knee(measured), tuple(effects)
    )


def neighbours(replicas: int, most: int) -> list[int]:
    """Fleet sizes around one: all up to eight of a small one, else from one replica to twice."""
    if replicas <= 8:
        return list(range(1, max(min(max(replicas + 2, 8), most), replicas) + 1))
    shares = (0.25, 0.5, 0.75, 1, 1.25, 1.5, 2)
    near = {1, replicas - 1, replicas + 1, *(round(replicas * share) for share in shares)}
    return sorted(count for count in near if 1 <= count <= max(most, replicas))


def effects_of(
    lab: Lab,
    bench: Bench,
    question: Question,
    candidates: Sequence[Candidate],
    wanted: Sequence[Case],
) -> list[Effect]:
    """The sensitivity, with every contending GPU type sized anew in every case."""
    contenders = [
        Contender(candidate.fleet, candidate.market.offers, question.max_gpus)
        for candidate in candidates
        if candidate.usd_per_hour <= CONTENDER_LIMIT * candidates[0].usd_per_hour
    ]
    asked = searches(bench, contenders, wanted)
    found = dict(zip(asked, lab.run(list(asked.values())), strict=True))
    recommended = contenders[0].fleet
    return [
        effect(
            case,
            recommended,
            {c.fleet.placement.gpu: found[case.change, c.fleet.placement.gpu] for c in contenders},
        )
        for case in wanted
    ]


def warnings(question: Question, markets: Sequence[Market]) -> list[str]:
    """What is doubtful about the prices."""
    listed = [price for market in markets if market.quote for price in market.quote.prices]
    return list(dict.fromkeys(text for price in listed for text in doubts(price, question.as_of)))
