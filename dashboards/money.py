"""What the fleet of a run costs, by the catalog's prices or by one that the user says."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from kvsim.analysis.economics import UnitCosts, cheapest_bill, unit_costs
from kvsim.catalog import load_gpu
from kvsim.errors import KvsimError
from kvsim.planning.prices import Preference, Quote, quote
from kvsim.runs import RunResult

from .settings import setting, size_of


class RunCost(NamedTuple):
    """The bill of a run's fleet while its traffic goes on."""

    usd_per_hour: float
    units: UnitCosts
    source: str
    """Whose price, of when."""


@cache
def quoted(gpu: str, price: float | None) -> Quote:
    """The offers for a GPU; at ``price`` dollars per GPU-hour if it is said."""
    said = () if price is None else ((None, price),)
    return quote(load_gpu(gpu), Preference(gpu_prices=said))


def cost_of(run: RunResult, price: float | None = None) -> RunCost | None:
    """The cost of a run; None if its GPU has no price or its manifest does not say what ran."""
    replicas, per_replica = size_of(run)
    if not replicas * per_replica:
        return None
    try:
        offers = quoted(setting(run, "gpu") or "", price)
    except KvsimError:
        return None
    bill = cheapest_bill(offers.offers, replicas, per_replica)
    if bill is None:
        return None
    listed = offers.price_of(bill.offer)
    source = " ".join(part for part in (bill.offer.name, listed.kind, listed.date) if part)
    return RunCost(bill.usd_per_hour, unit_costs(bill.usd_per_hour, run.summary), source)
