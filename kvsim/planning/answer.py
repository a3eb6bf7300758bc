"""The answer of a plan, with everything that it rests on."""

from __future__ import annotations

from typing import NamedTuple

from kvsim.analysis.economics import HOURS_PER_MONTH, Energy, Offer, OwnedCost, UnitCosts
from kvsim.catalog import Gpu
from kvsim.planning.deployment import Commands
from kvsim.planning.margins import Standing
from kvsim.planning.prices import Quote
from kvsim.planning.question import Question
from kvsim.planning.search import Fleet, Load, Option, Placement
from kvsim.planning.sensitivity import Effect
from kvsim.planning.trial import Outcome
from kvsim.planning.unloaded import MeanSizing, Traffic


class Market(NamedTuple):
    """One GPU type: what it is, what it costs, and how the model can be placed on it."""

    gpu: Gpu
    quote: Quote | None
    """None for owned hardware."""
    offers: tuple[Offer, ...]
    options: tuple[Option, ...]


class ByMeans(NamedTuple):
    """What mean-based sizing says for a GPU type, and what a replay makes of it."""

    placement: Placement
    sizing: MeanSizing
    outcome: Outcome

    @property
    def gpus(self) -> int:
        """How many it says."""
        return self.sizing.replicas * self.placement.gpus


class Candidate(NamedTuple):
    """The answer for one GPU type that can serve the trace."""

    market: Market
    fleet: Fleet
    outcome: Outcome
    """At the traffic that was asked about, replayed to its end."""
    usd_per_hour: float
    owned: OwnedCost | None
    costs: UnitCosts
    energy: Energy | None
    commands: Commands
    by_means: ByMeans | None
    highest_rate: float | None
    """As a multiple of the traffic."""

    @property
    def usd_per_month(self) -> float:
        """Of 730 hours."""
        return self.usd_per_hour * HOURS_PER_MONTH

    @property
    def offers(self) -> tuple[Offer, ...]:
        """What it can be paid by; of an owned GPU, with the power that the replay took."""
        if self.owned is None:
            return self.market.offers
        return (Offer("owned", None, self.owned.total),)


class Refused(NamedTuple):
    """A GPU type that no allowed fleet makes good enough."""

    market: Market
    reason: str
    by_means: ByMeans | None


class Exploration(NamedTuple):
    """The neighbourhood of the recommended fleet."""

    sizes: tuple[tuple[int, Outcome], ...]
    """Replicas of the same placement, and what they reach."""
    loads: tuple[Load, ...]
    knee: Load
    effects: tuple[Effect, ...]
    standings: tuple[Standing, ...]
    """Of the recommended fleet by each objective."""


class Plan(NamedTuple):
    """The answer, with what it rests on."""

    question: Question
    traffic: Traffic
    candidates: tuple[Candidate, ...]
    """Cheapest first; the first is recommended."""
    refused: tuple[Refused, ...]
    exploration: Exploration | None
    calibration: float
    cost_label: str
    warnings: tuple[str, ...]
    trials: int
    """Replays that it took."""
    hash: str
