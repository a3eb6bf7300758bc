"""What a report reads of a plan: ``plan.json``, checked. :mod:`kvsim.planning.document` writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pydantic import TypeAdapter, ValidationError

from kvsim.errors import ConfigError, shown
from kvsim.planning.document import SCHEMA_VERSION
from kvsim.planning.margins import Standing

Number = float | None


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The trace of a plan."""

    name: str
    sha256: str | None
    requests: int
    span_s: float
    request_rate: float
    mean_prompt_tokens: float
    mean_output_tokens: float
    headroom: float


@dataclass(frozen=True, kw_only=True)
class Reached:
    """What a replay has shown; None of what a hopeless one was not asked."""

    met: bool
    attainment: Number = None
    attainment_at_most: Number = None
    mean_ttft_ms: Number = None
    p50_ttft_ms: Number = None
    p99_ttft_ms: Number = None
    mean_tpot_ms: Number = None
    p50_tpot_ms: Number = None
    p99_tpot_ms: Number = None
    mean_e2el_ms: Number = None
    p50_e2el_ms: Number = None
    p99_e2el_ms: Number = None
    busy_fraction: Number = None
    verdict: str | None = None
    verdict_evidence: str | None = None
    overloaded: bool | None = None
    output_throughput: Number = None
    peak_kv_cache_usage: Number = None
    cost_model: str | None = None

    @property
    def speed(self) -> Number:
        """Output tokens a second that a user sees."""
        return 1e3 / self.mean_tpot_ms if self.mean_tpot_ms else None


@dataclass(frozen=True, kw_only=True)
class ByMeans:
    """What mean-based sizing says."""

    gpus: int
    tensor_parallel_size: int
    attainment: float
    needed_by_said: Number


@dataclass(frozen=True, kw_only=True)
class Energy:
    """Electric energy of a fleet."""

    kilowatts: float
    kwh_per_month: float
    usd_per_month: float
    co2_kg_per_month: Number


@dataclass(frozen=True, kw_only=True)
class Price:
    """Where the dollars come from: a line of a price list, or parts of ownership."""

    offer: str
    note: str
    instances: int | None = None
    gpus_per_instance: int | None = None
    usd_per_gpu_hour: Number = None
    region: str | None = None
    commitment: str | None = None
    date: str | None = None
    source: str | None = None
    capital: Number = None
    staff: Number = None
    power: Number = None

    @property
    def line(self) -> str:
        """In words."""
        if self.usd_per_gpu_hour is None:
            parts = ((self.capital, "capital"), (self.staff, "staff"), (self.power, "power"))
            said = " + ".join(f"${usd or 0:.3f} {what}" for usd, what in parts)
            return f"owned: {said} a GPU-hour"
        units = f"{self.instances} × {self.offer}" if self.gpus_per_instance else self.offer
        return (
            f"{units}, ${self.usd_per_gpu_hour:g} a GPU-hour, {self.commitment}, {self.region}, "
            f"{self.date or 'undated'} ({self.source}; {self.note})"
        )


@dataclass(frozen=True, kw_only=True)
class Candidate(Reached):
    """The cheapest fleet of a GPU type."""

    gpu: str
    tensor_parallel_size: int
    max_num_batched_tokens: int | None
    pipeline_parallel_size: int = 1
    replicas: int
    gpus: int
    gpus_billed: int
    usd_per_hour: float
    usd_per_month: float
    usd_per_million_output_tokens: Number
    usd_per_million_tokens: Number
    usd_per_thousand_good_requests: Number
    highest_request_rate: Number
    energy: Energy | None
    price: Price
    by_means: ByMeans | None
    vllm: str
    sglang: str
    notes: list[str]

    @property
    def fleet(self) -> str:
        """In words."""
        spare = f", {self.gpus_billed} billed" if self.gpus_billed > self.gpus else ""
        replicas = f"{self.replicas} replica{'s' if self.replicas > 1 else ''}"
        stages = self.pipeline_parallel_size
        shards = f"TP {self.tensor_parallel_size}" + (f", PP {stages}" if stages > 1 else "")
        return f"{self.gpus} × {self.gpu} ({replicas} of {shards}{spare})"


@dataclass(frozen=True, kw_only=True)
class Refused:
    """A GPU type that cannot."""

    gpu: str
    reason: str
    by_means: ByMeans | None


@dataclass(frozen=True, kw_only=True)
class Size(Reached):
    """A fleet of another size."""

    replicas: int
    gpus: int


@dataclass(frozen=True, kw_only=True)
class Load(Reached):
    """The recommended fleet under other traffic."""

    request_rate: float


@dataclass(frozen=True, kw_only=True)
class Effect:
    """One changed assumption."""

    factor: str
    case: str
    replicas: int | None
    gpus: int | None
    usd_per_month: Number
    cheapest_gpu: str | None
    changes_the_answer: bool
    recommended_fleet_holds: bool | None = None
    """None in plans of before it was told."""


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """The neighbourhood of the answer."""

    sizes: list[Size]
    loads: list[Load]
    knee_request_rate: float
    knee_is_last_load: bool
    sensitivity: list[Effect]
    objectives: list[Standing] = field(default_factory=list)
    """Empty in plans of before they were told."""


@dataclass(frozen=True, kw_only=True)
class PlanData:
    """A plan."""

    objective: list[str]
    limits: dict[str, float]
    attainment_needed: Number
    max_gpus: int
    model: str
    trace: Traffic
    candidates: list[Candidate]
    refused: list[Refused]
    exploration: Exploration | None
    assumptions: list[str]
    warnings: list[str]
    cost_model: str
    calibration_error: float
    replays: int
    kvsim_version: str
    as_of: str
    hash: str
    command: str

    @cached_property
    def best(self) -> Candidate | None:
        """What is recommended."""
        return self.candidates[0] if self.candidates else None


def read_plan(value: object, place: str) -> PlanData:
    """A plan from JSON values; ConfigError names the key that is wrong."""
    version = value.get("schema_version") if isinstance(value, Mapping) else None
    if version != SCHEMA_VERSION:
        raise ConfigError(
            f"{place}: is no plan: schema_version {version!r}; this kvsim reads {SCHEMA_VERSION}"
        )
    try:
        return TypeAdapter(PlanData).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{place}: {key}: {first['msg']} ({shown(first['input'])})") from None
