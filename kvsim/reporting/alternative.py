"""A deployment that was replayed: what it reached, what it costs, and which of several is best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from kvsim.analysis.economics import Bill, Energy, UnitCosts, energy, unit_costs
from kvsim.catalog import Gpu, load_gpu
from kvsim.errors import ConfigError
from kvsim.planning.objective import DEFAULT_ATTAINMENT, Objective, read_objective
from kvsim.reporting.paid import UNKNOWN, Paid, Prices

if TYPE_CHECKING:
    from kvsim.runs import RunResult

SHORT = 24
"""Letters of a name that fit beside a point."""
NO_COSTS = UnitCosts(None, None, None)


@dataclass(frozen=True, slots=True)
class Terms:
    """By what alternatives are judged: prices and service."""

    prices: Prices
    targets: tuple[str, ...] = ()
    """Objectives as they are written: ``ttft_p99=2s``, ``ttft=2s``; empty: those of each scenario."""
    attainment: float | None = None

    def objective(self, scenario: Mapping[str, object]) -> Objective | None:
        """What a run of a scenario is held to; None if nothing was ever asked of it."""
        own = scenario.get("slo")
        limits = own.items() if isinstance(own, Mapping) else ()
        targets = self.targets or tuple(f"{name}={limit}s" for name, limit in limits)
        return read_objective(targets, self.attainment) if targets else None


@dataclass(frozen=True)
class Alternative:
    """One deployment. All that depends on money is None where no price is known."""

    name: str
    scenario: Mapping[str, object]
    summary: Mapping[str, object]
    terms: Terms
    result: RunResult | None = None
    """With its tables, if these were kept."""

    @cached_property
    def objective(self) -> Objective | None:
        """What it is held to."""
        return self.terms.objective(self.scenario)

    @cached_property
    def attainment(self) -> float | None:
        """Share of all requests that meet every limit on a request; None where it is not known."""
        if self.objective is None or not self.objective.limits:
            return None
        if self.result is not None:
            return attained(self.result, self.objective.limits)
        if self.objective.limits != self.scenario.get("slo"):
            return None
        good, duration = self.number("request_goodput"), self.number("duration")
        return None if good is None or not duration else round(good * duration) / self.requests

    @property
    def goodput(self) -> float | None:
        """Requests a second that meet every limit; None where it is not known."""
        if self.objective is None or self.objective.limits == self.scenario.get("slo"):
            return self.number("request_goodput")
        duration = self.number("duration")
        if self.attainment is None or not duration:
            return None
        return self.attainment * self.requests / duration

    @property
    def met(self) -> bool | None:
        """Whether the objective is reached; None if there is none."""
        if self.objective is None:
            return None
        assert self.attainment is not None or self.objective.attainment is None
        return self.objective.met(self.summary, self.attainment or 0.0)

    @property
    def requests(self) -> int:
        """Of the trace, those that were refused included."""
        return int((self.number("completed") or 0) + (self.number("num_rejected") or 0))

    @property
    def gpus_of_a_replica(self) -> int:
        """Tensor parallel times pipeline parallel size."""
        return self.setting("tensor_parallel_size") * self.setting("pipeline_parallel_size")

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.gpus_of_a_replica * self.setting("replicas")

    @property
    def mark(self) -> str:
        """The beginning of the name, for a place that is small."""
        return self.name if len(self.name) <= SHORT else self.name.partition(" ")[0][:SHORT]

    @property
    def fleet(self) -> str:
        """In words, with the GPUs that are billed where these are more."""
        billed = self.bill.gpus_billed if self.bill else self.gpus
        spare = f" ({billed} billed)" if billed > self.gpus else ""
        return f"{self.gpus} × {self.gpu.name if self.gpu else self.scenario.get('gpu')}{spare}"

    @cached_property
    def gpu(self) -> Gpu | None:
        """Its type; None if this catalog does not have it."""
        try:
            return load_gpu(str(self.scenario.get("gpu")))
        except ConfigError:
            return None

    @cached_property
    def paid(self) -> Paid | None:
        """What is paid, and by which price."""
        if self.gpu is None:
            return None
        busy = self.number("busy_fraction") or 0.0
        return self.terms.prices.of(
            self.gpu, self.setting("replicas"), self.gpus_of_a_replica, busy
        )

    @property
    def bill(self) -> Bill | None:
        """What is paid."""
        return self.paid.bill if self.paid else None

    @property
    def costs(self) -> UnitCosts:
        """Dollars per unit of work."""
        if self.bill is None:
            return NO_COSTS
        judged = {**self.summary, "request_goodput": self.goodput}
        return unit_costs(self.bill.usd_per_hour, judged)

    @property
    def energy(self) -> Energy | None:
        """Electric energy; None if the GPU's power or its load is not known."""
        power = self.terms.prices.electricity.power(self.gpu) if self.gpu else None
        busy = self.number("busy_fraction")
        return None if power is None or busy is None else energy(power, self.gpus, busy)

    @property
    def price_line(self) -> str:
        """The price and where it comes from."""
        return self.paid.line if self.paid else UNKNOWN

    def number(self, key: str) -> float | None:
        """A number of the summary."""
        value = self.summary.get(key)
        return float(value) if isinstance(value, int | float) else None

    def setting(self, key: str) -> int:
        """A count of the scenario."""
        value = self.scenario.get(key, 1)
        return value if isinstance(value, int) else 1

    @property
    def speed(self) -> float | None:
        """Output tokens a second that a user sees: one by the mean time per output token."""
        gap = self.number("mean_tpot_ms")
        return 1e3 / gap if gap else None

    @property
    def output_per_gpu(self) -> float | None:
        """Output tokens a second that a GPU gives."""
        tokens = self.number("output_throughput")
        return None if tokens is None else tokens / self.gpus


def attained(result: RunResult, limits: Mapping[str, float]) -> float:
    """Share of all requests of a run that meet every limit; a refused one meets none."""
    from kvsim.analysis.latency import latencies, meets

    table = result.requests
    good = meets(latencies(table.served()), limits)
    return float(good.sum()) / len(table) if len(table) else 0.0


def of_run(result: RunResult, name: str, terms: Terms) -> Alternative:
    """A run with its tables."""
    scenario = result.manifest.get("scenario")
    return Alternative(
        name, scenario if isinstance(scenario, dict) else {}, result.summary, terms, result
    )


def ranked(alternatives: Sequence[Alternative]) -> list[Alternative]:
    """The best first: those that meet the objective, by cost; then those that do not, by service.

    The cost is dollars per request that meets the limits, or per output token where nothing was
    asked; where no price is known, GPUs in place of dollars.
    """
    return sorted(alternatives, key=_rank)


def _rank(one: Alternative) -> tuple[bool, float, float]:
    missed = one.met is False
    return missed, -(one.attainment or 0.0) if missed else 0.0, _unit_cost(one)


def _unit_cost(one: Alternative) -> float:
    work = one.number("output_throughput") if one.goodput is None else one.goodput
    spent = one.bill.usd_per_hour if one.bill else float(one.gpus)
    return spent / work if work else inf


def needed(objective: Objective) -> float:
    """The share of requests by which an attainment counts as enough."""
    return DEFAULT_ATTAINMENT if objective.attainment is None else objective.attainment
