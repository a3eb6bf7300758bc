"""The GPU types of a plan: what each costs, how the model can be placed on it, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from kvsim.analysis.economics import Offer, Power, owned_cost
from kvsim.catalog import Gpu
from kvsim.compose import trace_options
from kvsim.errors import CapacityError, ConfigError, KvsimError
from kvsim.planning.answer import Market
from kvsim.planning.pool import Lab
from kvsim.planning.prices import ANY, quote, warnings
from kvsim.planning.question import Question
from kvsim.planning.search import Bench, Option, Placement
from kvsim.planning.unloaded import Engine, Glance, Traffic, survey
from kvsim.quotas import Awaited
from kvsim.workload import open_trace


def surveyed(question: Question) -> Traffic:
    """The trace in a few numbers; ConfigError if its requests do not come over time."""
    trace = open_trace(question.trace, trace_options(question.scenario))
    awaited = Awaited(question.scenario.quotas or {})
    traffic = survey(Path(trace.name).name, awaited.watch(trace), trace.sha256())
    if not traffic.span:
        raise ConfigError(
            f"{question.trace}: all requests arrive at once, so there is no rate to plan for; "
            "--request-rate spreads them"
        )
    return traffic._replace(absent=awaited.absent)


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
    """The markets with every placement glanced at; raises why if the model can be placed nowhere."""
    placements = [
        [Placement(market.gpu.name, *shape) for shape in shapes(question)] for market in markets
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
    if not any(option.unloaded.fits for market in looked for option in market.options):
        raise misplaced(bench, [option.placement for option in looked[0].options])
    return looked


def misplaced(bench: Bench, placements: Sequence[Placement]) -> KvsimError:
    """Why none of the placements is possible: that of the largest which the model can be split into."""
    mistake: KvsimError | None = None
    for placement in reversed(placements):
        try:
            Engine.of(bench.on(placement))
        except CapacityError as error:
            return error
        except ConfigError as error:
            mistake = mistake or error
    assert mistake is not None
    return mistake


def cost_labels(markets: Sequence[Market]) -> list[str]:
    """Where the iteration times come from, each label once."""
    seen = [option.unloaded for market in markets for option in market.options]
    return list(dict.fromkeys(each.cost_label for each in seen if each.fits))


def shapes(question: Question) -> list[tuple[int, int | None, int]]:
    """Tensor parallel sizes with token budgets, and the scenario's pipeline parallel size."""
    stages = (question.scenario.pipeline_parallel_size,)
    return list(product(question.tensor_parallel_sizes, question.budgets, stages))


def sized(market: Market) -> list[Option]:
    """Placements that means find good enough, with the engine's own token budget."""
    budget = market.options[0].placement.max_num_batched_tokens
    return [
        option
        for option in market.options
        if option.unloaded.sizing is not None and option.placement.max_num_batched_tokens == budget
    ]


def why_not(question: Question, market: Market) -> str:
    """Why no fleet of a GPU type will do: the reason of the placement that comes closest.

    Those that could be replayed come before those that are too large for the question.
    """
    fitting = [option for option in market.options if can_be_had(question, market, option)]
    closest = max(fitting or market.options, key=closeness)
    size, shards = closest.placement.gpus, closest.placement.shards
    if closest.unloaded.refusal is not None:
        named = f"{shards}: " if closest.unloaded.fits else ""
        return f"{named}{closest.unloaded.refusal}"
    if size > question.max_gpus:
        return f"a replica of {shards} has more GPUs than --max-gpus {question.max_gpus}"
    if not offered(market.offers, size):
        remedy = larger(question, market, size)
        return f"no offer has the {size} GPUs that one replica needs; accepted: {remedy}"
    count = question.replicas or question.max_gpus // size
    return f"not met with {count * size} GPUs, {count} replicas of {shards}"


def can_be_had(question: Question, market: Market, option: Option) -> bool:
    """Whether a replica could meet the objective when idle, is allowed, and is offered."""
    size = option.placement.gpus
    in_reach = option.unloaded.refusal is None
    return in_reach and size <= question.max_gpus and offered(market.offers, size)


def offered(offers: Sequence[Offer], size: int) -> bool:
    """Whether some offer has the GPUs of one replica in one machine."""
    return any(offer.gpus is None or offer.gpus >= size for offer in offers)


def larger(question: Question, market: Market, size: int) -> str:
    """Flags under which there is a price for so many GPUs in one machine."""
    own = f"--gpu-price {market.gpu.name}=DOLLARS"
    preference = replace(question.preference, provider=ANY)
    found = quote(market.gpu, preference, question.as_of).offers
    return f"--provider {ANY}, or {own}" if offered(found, size) else own


def closeness(option: Option) -> tuple[float, int]:
    """Which placement comes closest: by idle engines, then by size."""
    return option.unloaded.attainment, option.placement.gpus


def price_warnings(question: Question, markets: Sequence[Market]) -> list[str]:
    """What is doubtful about the prices."""
    listed = [price for market in markets if market.quote for price in market.quote.prices]
    return list(dict.fromkeys(text for price in listed for text in warnings(price, question.as_of)))
