"""What a fleet costs: dollars, energy and carbon, per hour, per month and per unit of work.

Pure functions on numbers. Prices come from :mod:`kvsim.catalog` or from the user; time and work from
the summary of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

HOURS_PER_YEAR = 8_760
HOURS_PER_MONTH = HOURS_PER_YEAR / 12
"""730, as cloud price lists count."""


class Offer(NamedTuple):
    """Something that can be rented."""

    name: str
    gpus: int | None
    """GPUs of the whole instance that is billed; None if single GPUs can be had."""
    usd_per_gpu_hour: float


class Bill(NamedTuple):
    """What is paid for a fleet."""

    offer: Offer
    gpus_needed: int
    gpus_billed: int
    usd_per_hour: float

    @property
    def instances(self) -> int:
        """Rented units: instances, or single GPUs."""
        return self.gpus_billed // (self.offer.gpus or 1)

    @property
    def usd_per_month(self) -> float:
        """Of 730 hours."""
        return self.usd_per_hour * HOURS_PER_MONTH


def cheapest_bill(offers: Iterable[Offer], replicas: int, gpus_per_replica: int) -> Bill | None:
    """The cheapest way to run ``replicas`` engines of ``gpus_per_replica`` GPUs each.

    Instances are paid whole, and a replica lies within one instance. None if no offer holds one.
    """
    bills = [_bill(offer, replicas, gpus_per_replica) for offer in offers]
    return min((bill for bill in bills if bill), key=lambda bill: bill.usd_per_hour, default=None)


def _bill(offer: Offer, replicas: int, gpus_per_replica: int) -> Bill | None:
    needed = replicas * gpus_per_replica
    billed = needed
    if offer.gpus is not None:
        per_instance = offer.gpus // gpus_per_replica
        if not per_instance:
            return None
        billed = ceil(replicas / per_instance) * offer.gpus
    return Bill(offer, needed, billed, billed * offer.usd_per_gpu_hour)


@dataclass(frozen=True, slots=True)
class Power:
    """How much electric power a GPU draws, what that costs and what it emits."""

    tdp_watts: float
    idle_share: float = 0.15
    """Of the thermal design power, drawn while nothing is computed. An assumption."""
    load: float | None = None
    """Share of the time at full power; None: the share of time that the engines computed."""
    pue: float = 1.3
    """Power usage effectiveness: what the building draws for each watt of the machines."""
    usd_per_kwh: float = 0.10
    co2_grams_per_kwh: float | None = None
    """Intensity of the grid; None if not known."""


class Energy(NamedTuple):
    """Energy of a fleet, at the meter of the building."""

    load: float
    kilowatts: float
    kwh_per_month: float
    usd_per_month: float
    co2_kg_per_month: float | None


def energy(power: Power, gpus: int, busy: float) -> Energy:
    """Draw of ``gpus`` GPUs that compute for the share ``busy`` of the time.

    An iteration counts as full thermal design power, which is an upper estimate for the memory-bound
    decode phase.
    """
    load = busy if power.load is None else power.load
    share = power.idle_share + (1 - power.idle_share) * load
    kilowatts = gpus * power.tdp_watts * share * power.pue / 1e3
    kwh = kilowatts * HOURS_PER_MONTH
    grams = power.co2_grams_per_kwh
    carbon = None if grams is None else kwh * grams / 1e3
    return Energy(load, kilowatts, kwh, kwh * power.usd_per_kwh, carbon)


@dataclass(frozen=True, slots=True)
class Ownership:
    """Bought hardware; the total cost of a GPU's share of everything."""

    capex_per_gpu: float
    """Dollars for the GPU and its share of server, network and installation."""
    years: float = 4.0
    """Straight-line depreciation."""
    utilisation: float = 1.0
    """Share of its hours in which the GPU serves this workload; the others cost as well."""
    staff_usd_per_gpu_year: float = 0.0
    """People and other running cost apart from power."""


class OwnedCost(NamedTuple):
    """Dollars per hour of use of one owned GPU, by what they are spent on."""

    capital: float
    staff: float
    power: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.capital + self.staff + self.power


def owned_cost(owned: Ownership, power: Power, busy: float) -> OwnedCost:
    """Hourly cost of an owned GPU. Hours without this workload cost capital and staff, not power."""
    hours = HOURS_PER_YEAR * owned.utilisation
    watts = energy(power, 1, busy)
    return OwnedCost(
        owned.capex_per_gpu / owned.years / hours,
        owned.staff_usd_per_gpu_year / hours,
        watts.usd_per_month / HOURS_PER_MONTH,
    )


class UnitCosts(NamedTuple):
    """Dollars per unit of work while the run's traffic goes on; None where there was no such work."""

    per_million_output_tokens: float | None
    per_million_tokens: float | None
    """Prompt and answer tokens together."""
    per_thousand_good_requests: float | None
    """Requests that met the objectives."""


def unit_costs(usd_per_hour: float, summary: Mapping[str, object]) -> UnitCosts:
    """Cost of the work of a run whose fleet costs ``usd_per_hour``."""
    return UnitCosts(
        _cost_of(usd_per_hour, summary.get("output_throughput"), 1e6),
        _cost_of(usd_per_hour, summary.get("total_token_throughput"), 1e6),
        _cost_of(usd_per_hour, summary.get("request_goodput"), 1e3),
    )


def _cost_of(usd_per_hour: float, rate: object, amount: float) -> float | None:
    """Dollars for ``amount`` at ``rate`` a second."""
    if not isinstance(rate, int | float) or not rate > 0:
        return None
    return usd_per_hour / 3600 / rate * amount
