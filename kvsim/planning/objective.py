"""What a plan must reach: limits on statistics of the run, and the share of requests that are good."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from kvsim.errors import ConfigError
from kvsim.slo import PER_REQUEST, Bound, read_bound, read_slos

Unit = Literal["ms", "share"]
DEFAULT_ATTAINMENT = 0.99
QUANTILES = {"median": 0.5, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


class Objective(NamedTuple):
    """Service-level objectives of a plan; times in seconds."""

    limits: dict[str, float]
    """By latency: what each request is held to. A request that was rejected meets nothing."""
    bounds: tuple[Bound, ...]
    """Limits on statistics of the run, over served requests."""
    attainment: float | None
    """Share of all requests that must meet every limit; None: the bounds decide alone."""

    @property
    def texts(self) -> list[str]:
        """As a person would write it."""
        bounded = [f"{b.metric.upper()} {b.statistic} <= {duration(b.limit)}" for b in self.bounds]
        if self.attainment is None:
            return bounded
        each = [f"{name.upper()} <= {duration(limit)}" for name, limit in self.limits.items()]
        return [*bounded, f"{self.attainment * 100:.4g}% of requests with {' and '.join(each)}"]

    @property
    def misses_allowed(self) -> float:
        """Share of requests that may miss a limit: beyond it the objective is out of reach."""
        return 1.0 if self.attainment is None else the_rest(self.attainment)

    @property
    def rejections_allowed(self) -> float:
        """Share of requests that may be refused."""
        within = [QUANTILES[b.statistic] for b in self.bounds if b.statistic in QUANTILES]
        return min(self.misses_allowed, the_rest(max([*within, DEFAULT_ATTAINMENT])))

    def scaled(self, factor: float) -> Objective:
        """The same with every time multiplied."""
        limits = {name: limit * factor for name, limit in self.limits.items()}
        bounds = tuple(bound._replace(limit=bound.limit * factor) for bound in self.bounds)
        return Objective(limits, bounds, self.attainment)

    @property
    def demands(self) -> Iterator[Demand]:
        """Everything that is asked of a run, one by one."""
        for bound in self.bounds:
            name = f"{bound.metric.upper()} {bound.statistic}"
            yield Demand(name, "ms", bound.limit * 1e3, bound.key)
        if self.attainment is not None:
            yield Demand("requests within all limits", "share", self.attainment, least=True)
        yield Demand("requests refused", "share", self.rejections_allowed)

    def met(self, summary: Mapping[str, object], attainment: float) -> bool:
        """Whether a run whose requests met all limits at this share reaches the objective."""
        served = bool(summary["completed"])
        return served and all(one.met(one.value(summary, attainment)) for one in self.demands)


class Demand(NamedTuple):
    """What one objective asks of a run."""

    name: str
    unit: Unit
    limit: float
    key: str | None = None
    """Of the latency in a summary; None of a share."""
    least: bool = False
    """Whether the limit is the least that is good, and not the most."""

    def value(self, summary: Mapping[str, object], attainment: float) -> float | None:
        """Where a run is; None of a latency that none of its requests has."""
        if self.least:
            return attainment
        if self.key is None:
            return refused(summary)
        seen = summary.get(self.key)
        return float(seen) if isinstance(seen, int | float) else None

    def met(self, value: float | None) -> bool:
        """Whether that is good: a latency that no request has is (TPOT of one-token answers)."""
        if value is None:
            return True
        return value >= self.limit if self.least else value <= self.limit

    def margin(self, value: float) -> float:
        """What is left of what is allowed, as a share of it: of a time, or of what may miss."""
        used, allowed = (
            (the_rest(value), the_rest(self.limit)) if self.least else (value, self.limit)
        )
        return (allowed - used) / (allowed or 1.0)


def the_rest(share: float) -> float:
    """What is left of 1 without the dust of binary fractions: of 0.9995, 0.0005."""
    return round(1 - share, 12)


def refused(summary: Mapping[str, object]) -> float:
    """Share of the requests that were rejected."""
    rejected, completed = summary["num_rejected"], summary["completed"]
    assert isinstance(rejected, int)
    assert isinstance(completed, int)
    return rejected / ((rejected + completed) or 1)


def read_objective(texts: Iterable[str], attainment: float | None = None) -> Objective:
    """Read ``ttft_p99=2s`` (of the run) and ``ttft=2s`` (of each request).

    Every objective but a mean also limits single requests, for the attainment that is reported; of
    several for one latency, the one of the highest quantile. The share of requests is required when
    ``attainment`` is given, and to be 0.99 when an objective has no statistic.
    """
    limits: dict[str, tuple[float, float]] = {}
    bounds: list[Bound] = []
    required = attainment
    for text in texts:
        bound, plain = _read(text)
        quantile = 1.0 if plain else QUANTILES.get(bound.statistic)
        if plain:
            required = DEFAULT_ATTAINMENT if required is None else required
        else:
            bounds.append(bound)
        if quantile is not None and bound.metric in PER_REQUEST:
            limits[bound.metric] = max(limits.get(bound.metric, (0, 0)), (quantile, bound.limit))
    if not limits and not bounds:
        raise ConfigError("a plan needs an objective: --slo ttft_p99=2s --slo tpot_p99=50ms")
    if attainment is not None and not limits:
        raise ConfigError("--attainment needs a limit on each request: --slo ttft=2s")
    return Objective({name: limit for name, (_, limit) in limits.items()}, tuple(bounds), required)


def _read(text: str) -> tuple[Bound, bool]:
    """A bound, and whether it was written for each request."""
    bound = read_bound(text)
    name = text.replace(":", "=").partition("=")[0].strip()
    if name != bound.metric:
        return bound, False
    if name not in PER_REQUEST:
        raise ConfigError(f"objective {text!r}: {name} needs a statistic, as in {name}_p99")
    limits = read_slos([text])
    assert isinstance(limits, dict)
    return bound._replace(limit=limits[name]), True


def duration(seconds: float) -> str:
    """A limit with the unit that suits it."""
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1e3:.6g} ms"
