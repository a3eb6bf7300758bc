"""How far the recommended fleet is from each of its limits, as asked about and in worse worlds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvsim.planning.objective import Demand, Unit, duration
from kvsim.planning.pool import Search
from kvsim.planning.search import Bench, Fleet
from kvsim.planning.sensitivity import Case
from kvsim.planning.trial import Change, Outcome

WORSE = ("calibration", "traffic")
"""Factors that an objective is looked at under, where they make it harder."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One objective in one world."""

    case: str
    value: float | None
    """Milliseconds or a share; None where no request has such a latency, which breaks no limit."""
    margin: float | None
    """What is left of what is allowed, as a share of it: of a time, or of the requests that may miss."""
    met: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """One objective: its limit, and where the recommended fleet is."""

    objective: str
    unit: Unit
    limit: float
    """Milliseconds or a share."""
    readings: tuple[Reading, ...]
    """As asked about, then in each worse world."""

    @property
    def now(self) -> Reading:
        """At the traffic that the fleet is sized for."""
        return self.readings[0]


def reading(demand: Demand, case: str, outcome: Outcome) -> Reading:
    """Where a run is."""
    assert outcome.summary is not None
    value = demand.value(outcome.summary, outcome.attainment)
    margin = None if value is None else demand.margin(value)
    return Reading(case, value, margin, demand.met(value))


def worse(cases: Iterable[Case], asked: Change) -> list[Case]:
    """Those in which a fleet has a harder time than in the world that was asked about."""
    return [case for case in cases if case.factor in WORSE and case.change > asked]


def stood(
    bench: Bench, fleet: Fleet, asked: Change, cases: Sequence[Case]
) -> Search[tuple[Standing, ...]]:
    """The fleet's standing in the world that was asked about and in the cases, replayed whole.

    That no request is refused anywhere is not told.
    """
    changes = [asked, *(case.change for case in cases)]
    outcomes = yield [
        bench.trial(fleet.placement, fleet.replicas, change, whole=True) for change in changes
    ]
    worlds = list(zip(["as asked", *(case.label for case in cases)], outcomes, strict=True))
    found = [
        Standing(one.name, one.unit, one.limit, tuple(reading(one, *world) for world in worlds))
        for one in bench.objective.demands
    ]
    silent = not any(reading.value for reading in found[-1].readings)
    return tuple(found[:-1] if silent and len(found) > 1 else found)


def table(standings: Sequence[Standing]) -> tuple[list[str], list[Row]]:
    """Titles and rows for a reader: each objective, and last the fleet; a margin is a share."""
    cases = [reading.case.removesuffix(" than modelled") for reading in standings[0].readings[1:]]
    worlds = zip(*(one.readings for one in standings), strict=True)
    now, *then = ["holds" if all(r.met for r in world) else "misses" for world in worlds]
    fleet = Row("recommended fleet", "", now, None, then)
    return [*Row._fields[:4], *cases], [*map(row_of, standings), fleet]


class Row(NamedTuple):
    """An objective as a reader sees it."""

    objective: str
    limit: str
    value: str
    margin: float | None
    cases: list[str]

    @property
    def cells(self) -> tuple[str | float | None, ...]:
        """One under each title."""
        return (*self[:4], *self.cases)


def row_of(one: Standing) -> Row:
    """The row of an objective."""
    now, *then = (amount(one.unit, reading) for reading in one.readings)
    return Row(one.objective, limit(one), now, one.now.margin, then)


def limit(one: Standing) -> str:
    """The limit, with the unit that suits it."""
    return duration(one.limit / 1e3) if one.unit == "ms" else f"{100 * one.limit:.4g}%"


def amount(unit: Unit, reading: Reading) -> str:
    """A value, marked where it misses its limit."""
    value = reading.value
    if value is None:
        return "-"
    text = duration(float(f"{value / 1e3:.3g}")) if unit == "ms" else f"{value:.2%}"
    return text if reading.met else f"{text} (missed)"
