"""Would the answer be another one if the assumptions were a little wrong?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvsim.analysis.economics import Offer, cheapest_bill
from kvsim.planning.pool import Search
from kvsim.planning.search import Bench, Fleet, cost, smallest
from kvsim.planning.trial import Change

VARIATION = 0.20
"""Of traffic, answers and prices."""
SLIGHT = 0.10
"""Of traffic, besides."""


class Case(NamedTuple):
    """One assumption, changed."""

    factor: str
    """What is changed: the cases of a factor belong together, from the easiest to the hardest."""
    label: str
    change: Change
    price: float = 1.0
    """Price of the recommended GPU, as a multiple."""


class Effect(NamedTuple):
    """What a change does to the recommended fleet, and who would be recommended instead."""

    case: Case
    replicas: int | None
    """Of the same placement; None if no allowed number is enough."""
    gpus: int | None
    usd_per_month: float | None
    winner: str | None
    """GPU type that would be cheapest."""
    changes: bool
    """Whether another GPU type, or another number of them, would be recommended."""
    holds: bool
    """Whether the recommended fleet is enough."""


@dataclass(frozen=True, slots=True)
class Contender:
    """The best fleet of one GPU type, and what it can be changed to."""

    fleet: Fleet
    offers: tuple[Offer, ...]
    most_gpus: int


def cases(calibration: float, traffic: float) -> list[Case]:
    """Every assumption up and down; ``traffic`` is the headroom that the plan was made with."""
    low, high = 1 - VARIATION, 1 + VARIATION
    return [
        Case("traffic", f"traffic -{VARIATION:.0%}", Change(traffic=low * traffic)),
        Case("traffic", f"traffic -{SLIGHT:.0%}", Change(traffic=(1 - SLIGHT) * traffic)),
        Case("traffic", f"traffic +{SLIGHT:.0%}", Change(traffic=(1 + SLIGHT) * traffic)),
        Case("traffic", f"traffic +{VARIATION:.0%}", Change(traffic=high * traffic)),
        Case("answers", f"answers {VARIATION:.0%} shorter", Change(traffic, low)),
        Case("answers", f"answers {VARIATION:.0%} longer", Change(traffic, high)),
        Case(
            "calibration",
            f"engine {calibration:.0%} faster than modelled",
            Change(traffic, 1.0, 1 - calibration),
        ),
        Case(
            "calibration",
            f"engine {calibration:.0%} slower than modelled",
            Change(traffic, 1.0, 1 + calibration),
        ),
        Case("price", f"price of the recommended GPU -{VARIATION:.0%}", Change(traffic), low),
        Case("price", f"price of the recommended GPU +{VARIATION:.0%}", Change(traffic), high),
    ]


def resize(bench: Bench, contender: Contender, change: Change) -> Search[Fleet | None]:
    """The smallest fleet of the contender's placement in a changed world."""
    placement, size = contender.fleet.placement, contender.fleet.placement.gpus
    most = contender.most_gpus // size
    found = yield from smallest(bench.enough(placement, change), 1, most, contender.fleet.replicas)
    if found is None:
        return None
    bill = cheapest_bill(contender.offers, found, size)
    assert bill is not None
    return Fleet(placement, found, bill)


def effect(case: Case, recommended: Fleet, fleets: Mapping[str, Fleet | None]) -> Effect:
    """Judge a case by the fleets that its world needs, by GPU type."""
    priced = {
        gpu: repriced(fleet, case.price if gpu == recommended.placement.gpu else 1.0)
        for gpu, fleet in fleets.items()
        if fleet is not None
    }
    winner = min(priced, key=lambda gpu: cost(priced[gpu].bill), default=None)
    own = priced.get(recommended.placement.gpu)
    same = own is not None and own.replicas == recommended.replicas
    return Effect(
        case,
        own.replicas if own else None,
        own.bill.gpus_needed if own else None,
        own.bill.usd_per_month if own else None,
        winner,
        changes=not (same and winner == recommended.placement.gpu),
        holds=own is not None and own.replicas <= recommended.replicas,
    )


def repriced(fleet: Fleet, factor: float) -> Fleet:
    """The same fleet at another price."""
    bill = fleet.bill._replace(usd_per_hour=fleet.bill.usd_per_hour * factor)
    return fleet._replace(bill=bill)


def searches(
    bench: Bench, contenders: Sequence[Contender], wanted: Sequence[Case]
) -> dict[tuple[Change, str], Search[Fleet | None]]:
    """What has to be found out, each once."""
    return {
        (case.change, contender.fleet.placement.gpu): resize(bench, contender, case.change)
        for case in wanted
        for contender in contenders
    }
