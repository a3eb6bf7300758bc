"""How far the recommended fleet is from each of its limits, as asked about and in worse worlds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kvsim.planning.objective import Objective, duration
from kvsim.planning.pool import Search
from kvsim.planning.search import Bench, Fleet
from kvsim.planning.sensitivity import Case
from kvsim.planning.trial import Change, Outcome

Unit = Literal["ms", "share"]
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


@dataclass(frozen=True, slots=True)
class Demand:
    """What one objective asks of a run."""

    name: str
    unit: Unit
    limit: float
    key: str | None = None
    """Of the latency in a summary; None of a share."""
    least: bool = False
    """Whether the limit is the least that is good, and not the most."""

    def reading(self, case: str, outcome: Outcome) -> Reading:
        """Where a run is."""
        value = self._value(outcome)
        if value is None:
            return Reading(case, None, None, met=True)
        used, allowed = (1 - value, 1 - self.limit) if self.least else (value, self.limit)
        return Reading(case, value, (allowed - used) / (allowed or 1.0), met=used <= allowed)

    def _value(self, outcome: Outcome) -> float | None:
        summary = outcome.summary
        assert summary is not None
        if self.least:
            return outcome.attainment
        if self.key is None:
            return refused(summary)
        seen = summary.get(self.key)
        return float(seen) if isinstance(seen, int | float) else None


def refused(summary: Mapping[str, object]) -> float:
    """Share of the requests that were rejected."""
    rejected, completed = summary["num_rejected"], summary["completed"]
    assert isinstance(rejected, int)
    assert isinstance(completed, int)
    return rejected / ((rejected + completed) or 1)


def demands(objective: Objective) -> Iterator[Demand]:
    """Everything that :meth:`Objective.met` asks, one by one."""
    for bound in objective.bounds:
        name = f"{bound.metric.upper()} {bound.statistic}"
        yield Demand(name, "ms", bound.limit * 1e3, bound.key)
    if objective.attainment is not None:
        yield Demand("requests within all limits", "share", objective.attainment, least=True)
    yield Demand("requests refused", "share", objective.rejections_allowed)


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
        Standing(one.name, one.unit, one.limit, tuple(one.reading(*world) for world in worlds))
        for one in demands(bench.objective)
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
