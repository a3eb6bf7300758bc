"""Asks the searches in their order and puts the answer together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvsim.analysis.economics import (
    energy,
    owned_cost,
    unit_costs,
)
from kvsim.catalog import load_gpu
from kvsim.errors import ConfigError
from kvsim.planning.answer import ByMeans, Candidate, Exploration, Market, Plan, Refused
from kvsim.planning.archive import Archive, Memory, context
from kvsim.planning.deployment import commands
from kvsim.planning.margins import stood, worse
from kvsim.planning.market import (
    cost_labels,
    looked_at,
    market_of,
    price_warnings,
    site_power,
    sized,
    surveyed,
    why_not,
)
from kvsim.planning.pool import Lab
from kvsim.planning.question import Question, calibration
from kvsim.planning.search import (
    Bench,
    Fleet,
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
from kvsim.planning.unloaded import Engine, Traffic
from kvsim.scenario import Scenario

Told = Callable[[str, int], None]
"""Is told what is being done, and how many replays there were."""

CONTENDER_LIMIT = 2.0
"""Multiple of the cheapest cost from which a GPU type is not sized anew for the sensitivity."""


def plan(
    question: Question,
    *,
    jobs: int = 1,
    told: Told = lambda what, count: None,
    keep: bool = True,
    archive: Archive | None = None,
) -> Plan:
    """Answer a question. CapacityError if no GPU type can hold the model at all.

    ``keep`` the tables of the recommended fleet's run, of which a report draws pictures. What
    ``archive`` knows is not replayed again, and all that is replayed is added to it.
    """
    if question.trace == "-":
        raise ConfigError("a plan reads the trace several times, so it cannot be standard input")
    traffic = surveyed(question)
    bench = Bench(question.scenario, question.trace, traffic.requests, question.objective)
    step = ["sizing"]
    memory = remembering(archive, question.scenario, traffic)
    with Lab(jobs, lambda count: told(step[0], count), memory) as lab:
        markets = [market_of(question, gpu) for gpu in dict.fromkeys(map(load_gpu, question.gpus))]
        markets = looked_at(lab, bench, question, traffic, markets)
        step[0] = "searching fleets"
        found = fleets(lab, bench, question, markets)
        step[0] = "checking"
        candidates, refused = judged(lab, bench, question, markets, found, keep=keep)
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
            tuple(price_warnings(question, markets)),
            lab.trials,
            question.hash(traffic.sha256),
        )


def remembering(archive: Archive | None, scenario: Scenario, traffic: Traffic) -> Memory | None:
    """What the archive can know about this scenario and trace."""
    named = context(scenario, traffic.sha256)
    return Memory(archive, named) if archive and named else None


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
    *,
    keep: bool,
) -> tuple[list[Candidate], list[Refused]]:
    """Whole replays of what was found and of what means would say; cheapest first."""
    good = [(m, fleet) for m, fleet in zip(markets, found, strict=True) if fleet is not None]
    best = min((fleet for _, fleet in good), key=lambda fleet: cost(fleet.bill), default=None)
    outcomes = lab.run([whole(bench, fleet, keep=keep and fleet is best) for _, fleet in good])
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
    counts = neighbours(fleet.replicas, question.max_gpus // fleet.placement.gpus)
    [outcomes] = lab.run([sizes(bench, fleet.placement, counts)])
    [measured] = lab.run([loads(bench, fleet, candidates[0].highest_rate or 1.0)])
    asked = Change(traffic=1 + question.headroom)
    wanted = cases(interval, asked.traffic)
    [standings] = lab.run([stood(bench, fleet, asked, worse(wanted, asked))])
    effects = effects_of(lab, bench, question, candidates, wanted)
    return Exploration(
        tuple(zip(counts, outcomes, strict=True)),
        tuple(measured),
        knee(measured),
        tuple(effects),
        standings,
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
        Contender(candidate.fleet, candidate.offers, question.max_gpus)
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
