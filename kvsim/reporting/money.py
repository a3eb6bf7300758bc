"""What a deployment costs, what the money is spent on, and what a unit of work comes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from kvsim.analysis.economics import HOURS_PER_MONTH, Bill, UnitCosts
from kvsim.reporting.alternative import Alternative
from kvsim.reporting.charts import Axis, Bars, Colour, Part
from kvsim.reporting.document import Column, Figure, Section, Table, bullets, section
from kvsim.reporting.forms import cents, dollars
from kvsim.reporting.paid import Paid


class Spending(NamedTuple):
    """Where the dollars of a month go."""

    name: str
    parts: dict[str, float]


class Costs(NamedTuple):
    """What a fleet costs: the cells of :data:`COLUMNS`."""

    gpus: int
    billed: int
    usd_per_hour: float
    usd_per_month: float
    usd_per_million_output_tokens: float | None
    usd_per_million_tokens: float | None
    usd_per_thousand_good_requests: float | None
    kilowatts: float | None
    kwh_per_month: float | None
    electricity_usd_per_month: float | None
    co2_kg_per_month: float | None


COLUMNS = (
    Column("GPUs", "count"),
    Column("billed", "count"),
    Column("$/hour", "cents"),
    Column("$/month", "dollars"),
    Column("$/1M output tokens", "cents"),
    Column("$/1M tokens", "cents"),
    Column("$/1,000 good requests", "cents"),
    Column("kW", "number"),
    Column("kWh a month", "count"),
    Column("electricity a month", "dollars"),
    Column("CO2 kg a month", "count"),
)
RENTED = "Rented prices include their electricity: energy is for information."


class Drawn(Protocol):
    """Energy of a fleet, computed or read."""

    @property
    def kilowatts(self) -> float: ...
    @property
    def kwh_per_month(self) -> float: ...
    @property
    def usd_per_month(self) -> float: ...
    @property
    def co2_kg_per_month(self) -> float | None: ...


def drawn(used: Drawn | None) -> tuple[float | None, float | None, float | None, float | None]:
    """The cells about energy; empty where the GPU's power is not known."""
    if used is None:
        return (None,) * 4
    return used.kilowatts, used.kwh_per_month, used.usd_per_month, used.co2_kg_per_month


COLOURS: dict[str, Colour] = {
    "computing": "blue",
    "waiting for work": "sky",
    "billed, not needed": "grey",
    "capital": "blue",
    "staff": "amber",
    "power": "orange",
}
"""What is paid for; a rented GPU is paid whether it computes or not."""


class Use(NamedTuple):
    """What a rented fleet is good for."""

    gpus_needed: int
    gpus_billed: int
    busy: float
    """Share of the time in which its engines compute."""


def rented(name: str, month: float, use: Use) -> Spending:
    """A rented fleet: the hours in which it computes, in which it waits, and GPUs beyond the need."""
    needed = month * use.gpus_needed / use.gpus_billed
    parts = {"computing": needed * use.busy, "waiting for work": needed * (1 - use.busy)}
    return Spending(name, parts | {"billed, not needed": month - needed})


def breakdown(spent: Sequence[Spending]) -> Figure | None:
    """A bar for each, the parts of its month beside one another."""
    kinds = list(dict.fromkeys(kind for one in spent for kind in one.parts))
    kinds = [kind for kind in kinds if any(one.parts.get(kind) for one in spent)]
    if not kinds:
        return None
    parts = tuple(
        Part(kind, [one.parts.get(kind, 0.0) for one in spent], COLOURS[kind]) for kind in kinds
    )
    notes = tuple(f"{dollars(sum(one.parts.values()))} a month" for one in spent)
    bars = Bars(Axis("dollars a month", "dollars"), tuple(one.name for one in spent), parts, notes)
    return Figure("costs", "What a month is spent on.", bars)


def costs(alternatives: Sequence[Alternative]) -> Section | None:
    """Cost of runs, by what is known about prices."""
    known = [one for one in alternatives if one.bill]
    rows = tuple((one.name, *_costs(one, one.bill)) for one in known if one.bill)
    spent = [spending(one, one.paid) for one in known[:MOST] if one.paid]
    priced = list(dict.fromkeys(f"{label(one)}: {one.price_line}" for one in alternatives))
    if not known:
        return section("Cost", bullets(priced))
    if not any(one.paid and one.paid.owned for one in known):
        priced.append(RENTED)
    return section(
        "Cost", Table((Column("run"), *COLUMNS), rows), breakdown(spent), bullets(priced)
    )


MOST = 12
"""Bars that are worth drawing."""


def spending(one: Alternative, paid: Paid) -> Spending:
    """What a month of a run's fleet is spent on."""
    if paid.owned is not None:
        hours = paid.bill.gpus_billed * HOURS_PER_MONTH
        return Spending(one.mark, {what: hours * usd for what, usd in paid.owned._asdict().items()})
    use = Use(paid.bill.gpus_needed, paid.bill.gpus_billed, one.number("busy_fraction") or 0.0)
    return rented(one.mark, paid.bill.usd_per_month, use)


def _costs(one: Alternative, bill: Bill) -> Costs:
    rented = (bill.gpus_needed, bill.gpus_billed, bill.usd_per_hour, bill.usd_per_month)
    return Costs(*rented, *one.costs, *drawn(one.energy))


def label(one: Alternative) -> str:
    """The GPU type of an alternative."""
    return one.gpu.name if one.gpu else str(one.scenario.get("gpu"))


def in_words(bill: Bill, unit: UnitCosts) -> str:
    """The cost in a sentence."""
    per = unit.per_million_output_tokens
    work = f"; {cents(per)} per million output tokens" if per is not None else ""
    return f"{dollars(bill.usd_per_month)} a month ({cents(bill.usd_per_hour)} an hour){work}"
