"""A scenario says everything that a run depends on apart from the trace.

It comes from a TOML or YAML file, from flags, or from keyword arguments; whoever wrote it, the same
validation applies and the same hash follows. :mod:`kvsim.compose` turns its names into objects.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_serializer,
    model_validator,
)

from kvsim.errors import ConfigError, shown, unknown
from kvsim.quotas import read_quotas
from kvsim.slo import read_slos

Scalar = str | int | float | bool | None
MOST = 10**12
"""Largest count of anything: its product with another that is bounded fits into 64 bits."""


def setting(default: object, panel: str, help: str, **bounds: Any) -> Any:
    """A field of a scenario: its default, its place in ``--help`` and what it means."""
    return Field(default, description=help, json_schema_extra={"panel": panel}, **bounds)


class Settings(BaseModel):
    """What all parts of a scenario have in common: immutable, finite, no unknown names."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True
    )


class Component(Settings):
    """A plug-in by name, with its options: ``"paged"`` or ``{name = "contiguous", fit = "best"}``."""

    name: str
    options: dict[str, Scalar] = {}

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: object) -> object:
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, Mapping) and "options" not in value:
            options = {key: option for key, option in value.items() if key != "name"}
            return {"name": value.get("name", ""), "options": options}
        return value

    @model_serializer
    def _write(self) -> dict[str, Scalar]:
        return {"name": self.name, **self.options}


class Workload(Settings):
    """How the trace is read and how its requests arrive (:class:`kvsim.workload.TraceOptions`)."""

    format: str | None = setting(None, "Workload", "Format of the trace; recognised if not given.")
    request_rate: PositiveFloat | Literal["inf"] | None = setting(
        None, "Workload", "Mean arrivals per second, instead of the trace's own; inf: all at once."
    )
    speedup: PositiveFloat | None = setting(
        None, "Workload", "Replay the arrivals this many times faster."
    )
    limit: PositiveInt | None = setting(None, "Workload", "Stop after this many requests.", le=MOST)
    start: float | None = setting(None, "Workload", "Skip what arrives before this second.", ge=0)
    duration: PositiveFloat | None = setting(
        None, "Workload", "Seconds of the trace to replay, from the start."
    )
    arrival: Literal["as-is", "poisson", "gamma"] = setting(
        "as-is", "Workload", "How arrivals are spaced: as-is, poisson or gamma."
    )
    burstiness: PositiveFloat = setting(
        1.0, "Workload", "Shape of gamma gaps: below 1 bursty, 1 Poisson, above 1 regular."
    )
    on_bad_row: Literal["error", "skip"] = setting(
        "error", "Workload", "A malformed row ends the run (error) or is counted (skip)."
    )
    hash_block: PositiveInt | None = setting(
        None, "Workload", "Tokens that a hash id stands for, where the trace does not say.", le=MOST
    )
    think_time_cap: float | None = setting(
        None, "Workload", "Longest pause between the turns of a session, seconds.", ge=0
    )
    sort: bool = setting(False, "Workload", "Sort the trace by time, in memory.")


class Scenario(Settings):
    """A complete, immutable configuration of a simulated deployment."""

    model: str = setting("llama-3-8b", "Model and GPU", "Model by name, or a config.json.")
    gpu: str = setting("h200", "Model and GPU", "GPU by name.")
    tensor_parallel_size: PositiveInt = setting(
        1, "Model and GPU", "GPUs that share each layer.", le=1024
    )
    pipeline_parallel_size: PositiveInt = setting(
        1, "Model and GPU", "GPUs that share the layers.", le=1024
    )
    weight_dtype: str = setting("auto", "Model and GPU", "Type of the weights; auto: as released.")
    gpu_memory_utilization: float = setting(
        0.92, "Model and GPU", "Share of the GPU's memory that the engine may use.", gt=0, le=1
    )
    kv_cache_dtype: str = setting("auto", "KV cache", "Type of the cached keys and values.")
    ssm_state_dtype: Literal["bf16", "fp32"] = setting(
        "bf16", "KV cache", "Type of recurrent states: bf16 or fp32."
    )
    block_size: PositiveInt = setting(16, "KV cache", "Tokens in a block.", le=65_536)
    num_gpu_blocks_override: PositiveInt | None = setting(
        None, "KV cache", "Blocks of each replica, instead of as many as fit.", le=MOST
    )
    kv_offloading_size: float = setting(
        0.0,
        "KV cache",
        "GiB of host memory behind the prefix cache; needs an engine.",
        ge=0,
        le=1e6,
    )
    host_bandwidth: float | None = setting(
        None,
        "KV cache",
        "GB/s of the link to the host by its data sheet, instead of the GPU's own.",
        gt=0,
        le=1e5,
    )
    isolation: Literal["global", "tenant", "user", "session"] = setting(
        "global", "KV cache", "Whose prompts share prefixes: global, tenant, user or session."
    )
    quotas: Annotated[dict[str, float] | None, BeforeValidator(read_quotas)] = setting(
        None, "KV cache", "Bound on each tenant's share of the pool: acme=50%,*=10%."
    )
    enable_prefix_caching: bool = setting(True, "KV cache", "Keep prefixes and reuse them.")
    allocator: Component = setting("paged", "KV cache", "Allocator by name, or module:Class.")
    eviction: Component = setting("lru", "KV cache", "Which cached blocks leave first.")
    reservation: Component = setting(
        "max", "KV cache", "What contiguous, buddy and slab set aside."
    )
    scheduler: Component = setting("chunked", "Scheduling", "Scheduler by name, or module:Class.")
    max_model_len: PositiveInt | None = setting(
        None,
        "Scheduling",
        "Longest prompt and answer together; without, what fits in the pool.",
        le=MOST,
    )
    max_num_seqs: PositiveInt | None = setting(
        None,
        "Scheduling",
        "Sequences that may run at once; without, what vLLM takes on the GPU.",
        le=MOST,
    )
    max_num_batched_tokens: PositiveInt | None = setting(
        None, "Scheduling", "Tokens in an iteration; without, what vLLM takes on the GPU.", le=MOST
    )
    long_prefill_token_threshold: int = setting(
        0, "Scheduling", "Longest chunk of a prompt in one iteration; 0 is no limit.", ge=0, le=MOST
    )
    watermark: float = setting(
        0.0, "Scheduling", "Share of the pool that admissions leave free.", ge=0, lt=1
    )
    victim: Component = setting("last", "Scheduling", "Who is preempted.")
    preemption: Component = setting(
        "recompute", "Scheduling", "What becomes of its KV; swap is to the host, auto the faster."
    )
    replicas: PositiveInt = setting(1, "Cluster", "Engines that serve side by side.", le=100_000)
    router: Component = setting("round-robin", "Cluster", "Which replica gets a request.")
    engine: str | None = setting(
        None,
        "Time",
        "Serving engine whose rules, delays and step times to use: vllm, vllm-0.23; none: plain.",
    )
    executor: str | None = setting(
        None,
        "Time",
        "Compute every iteration of a model of this shape on a device, and take the time that takes: "
        "gpu, cpu.",
    )
    cost_model: Component = setting(
        "profile", "Time", "What an iteration takes; with an engine, what that engine takes."
    )
    seed: int = setting(0, "Time", "Seed of everything random.", ge=0, lt=2**63)
    slo: Annotated[dict[str, float], BeforeValidator(read_slos)] = setting(
        {}, "Results", "Objective per request that counts for goodput, as ttft=2s. Repeatable."
    )
    workload: Workload = Workload()

    @model_validator(mode="before")
    @classmethod
    def _lift(cls, given: object) -> object:
        """Move an option that is a setting of the whole scenario (allocator.block_size) to it."""
        return lifted(given, cls.model_fields) if isinstance(given, Mapping) else given

    @model_validator(mode="after")
    def _budget_holds_a_token_each(self) -> Self:
        tokens, sequences = self.max_num_batched_tokens, self.max_num_seqs
        if tokens is not None and sequences is not None and tokens < sequences:
            raise ValueError(
                f"max_num_batched_tokens ({tokens}) is less than max_num_seqs ({sequences}): "
                "a full batch could not decode"
            )
        return self

    @property
    def hash(self) -> str:
        """SHA-256 of the settings, the same in every process and for every way to write them."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def changed(self, **settings: object) -> Scenario:
        """The same scenario with other values, validated again; what was not given stays so."""
        return read(type(self), {**self.model_dump(exclude_unset=True), **settings}, {})


COMPONENTS = {
    name: field.default
    for name, field in Scenario.model_fields.items()
    if field.annotation is Component
}
"""Settings that are plug-ins, with the name of the one that is used when nothing is said."""


def lifted(given: Mapping[str, Any], fields: Mapping[str, object]) -> dict[str, Any]:
    """Settings with those options of components that are settings themselves moved up."""
    settings = dict(given)
    for family, value in given.items():
        if family not in COMPONENTS or not isinstance(value, Mapping):
            continue
        shared = {name: option for name, option in value.items() if name in fields}
        for name, option in shared.items():
            if settings.setdefault(name, option) != option:
                raise ConfigError(f"{family}.{name} = {option!r} contradicts {settings[name]!r}")
        settings[family] = {name: option for name, option in value.items() if name not in shared}
    return settings


def read(
    kind: type[Scenario],
    settings: Mapping[str, object],
    flags: Mapping[str, object],
    *,
    source: Path | None = None,
) -> Scenario:
    """Validate settings, or say in one line which is wrong and where it came from."""
    try:
        return kind.model_validate(settings)
    except ValidationError as error:
        raise _explained(error, flags, source) from None


def _explained(
    error: ValidationError, flags: Mapping[str, object], source: Path | None
) -> ConfigError:
    first = error.errors(include_url=False)[0]
    nested = first["loc"][:1] in {("workload",), *((name,) for name in COMPONENTS)}
    where = ".".join(str(part) for part in first["loc"][: 1 + nested])
    leaf = where.rpartition(".")[2]
    if first["type"] == "extra_forbidden":
        kind = Workload if nested else Scenario
        mistake = unknown("setting", leaf, kind.model_fields)
        return ConfigError(f"{source}: {mistake}" if source else str(mistake))
    reason = first["msg"].removeprefix("Value error, ")
    if first["type"] == "model_type":
        reason = "must be a table of settings, or for a plug-in its name"
    if not where:
        return ConfigError(reason)
    flagged = where in flags or not source
    origin = f"--{leaf.replace('_', '-')}" if flagged else f"{source}: {where}"
    return ConfigError(f"{origin} = {_shown(first['input'])}: {reason[0].lower()}{reason[1:]}")


def _shown(value: object) -> str:
    return shown(value) if not isinstance(value, float) or math.isfinite(value) else str(value)
