"""What a plan is asked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date

from kvsim import __version__
from kvsim.analysis.economics import Ownership, Power
from kvsim.catalog import Gpu, load_gpu
from kvsim.errors import ConfigError
from kvsim.planning.archive import contents_of_files
from kvsim.planning.objective import Objective
from kvsim.planning.prices import Preference
from kvsim.scenario import Scenario

TENSOR_PARALLEL_SIZES = (1, 2, 4, 8)
TOKEN_BUDGETS = (None, 2048)
"""Tokens in an iteration to try: the engine's own, and vLLM's for small GPUs, whose shorter
iterations interrupt decoding less."""


@dataclass(frozen=True, slots=True)
class Electricity:
    """The site: what does not depend on the GPU. Fields as in :class:`Power`."""

    idle_share: float = 0.15
    load: float | None = None
    pue: float = 1.3
    usd_per_kwh: float = 0.10
    co2_grams_per_kwh: float | None = None

    def __post_init__(self) -> None:
        _within("--idle-power", self.idle_share, 0, 1)
        _within("--power-load", 0 if self.load is None else self.load, 0, 1)
        _within("--pue", self.pue, 1, 10)
        _within("--electricity-price", self.usd_per_kwh, 0, 100)
        _within("--carbon-intensity", self.co2_grams_per_kwh or 0, 0, 10_000)

    def power(self, gpu: Gpu) -> Power | None:
        """How much a GPU draws here; None if its design power is not known."""
        if gpu.tdp_watts is None:
            return None
        return Power(
            gpu.tdp_watts,
            self.idle_share,
            self.load,
            self.pue,
            self.usd_per_kwh,
            self.co2_grams_per_kwh,
        )


@dataclass(frozen=True, slots=True)
class Owned:
    """Bought instead of rented."""

    capex: tuple[tuple[str | None, float], ...]
    """Dollars per GPU with its share of the server, by GPU of the catalog (None: any)."""
    years: float = 4.0
    utilisation: float = 1.0
    staff_usd_per_gpu_year: float = 0.0

    def __post_init__(self) -> None:
        _within("--years", self.years, 0.1, 50)
        _within("--owned-utilisation", self.utilisation, 0.001, 1)
        _within("--staff", self.staff_usd_per_gpu_year, 0, 1e9)

    def of(self, gpu: Gpu) -> Ownership:
        """The cost of owning a GPU; ConfigError if its price is not said."""
        known = dict(self.capex)
        capex = known.get(gpu.name, known.get(None))
        if capex is None:
            raise ConfigError(f"no --capex for {gpu.name}: say --capex {gpu.name}=DOLLARS")
        return Ownership(capex, self.years, self.utilisation, self.staff_usd_per_gpu_year)


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that a plan depends on apart from the trace's content."""

    scenario: Scenario
    """The settings that all fleets share. Its number of replicas, if it was given, is kept."""
    trace: str
    gpus: tuple[str, ...]
    objective: Objective
    as_of: date = field(default_factory=date.today)
    """The day: later prices are not known yet, and the age of the others is judged by it."""
    tensor_parallel_sizes: tuple[int, ...] = TENSOR_PARALLEL_SIZES
    token_budgets: tuple[int | None, ...] = TOKEN_BUDGETS
    max_gpus: int = 128
    headroom: float = 0.0
    """The fleet must meet the objective at this much more traffic."""
    calibration: float | None = None
    """Half-width of the interval of the engine's speed; None: by the cost model's kind."""
    preference: Preference = field(default_factory=Preference)
    electricity: Electricity = field(default_factory=Electricity)
    owned: Owned | None = None
    explore: bool = True
    """Also find the highest rates, the knee, and the sensitivity."""

    def __post_init__(self) -> None:
        if not self.gpus:
            raise ConfigError("--gpu names no GPU; accepted: names separated by commas")
        if not self.tensor_parallel_sizes:
            raise ConfigError("--tensor-parallel-size names no size; accepted: as in 1,2,4,8")
        _within("--headroom", self.headroom, 0, 10)
        _within("--max-gpus", self.max_gpus, 1, 10_000)
        _within("--calibration-error", self.calibration or 0, 0, 0.9)
        _among("--gpu-price", self.preference.gpu_prices, self.gpus)
        _among("--capex", self.owned.capex if self.owned else (), self.gpus)
        share = self.objective.attainment
        if share is not None and not 0 < share <= 1:
            raise ConfigError(f"--attainment {share:g}: must be a share above 0, at most 1")

    @property
    def replicas(self) -> int | None:
        """Replicas of the fleet, if they are given and not sought."""
        return self.scenario.replicas if "replicas" in self.scenario.model_fields_set else None

    @property
    def budgets(self) -> tuple[int | None, ...]:
        """Token budgets that are tried: only the scenario's, if it names one."""
        if self.scenario.max_num_batched_tokens is not None:
            return (self.scenario.max_num_batched_tokens,)
        fewest = self.scenario.max_num_seqs or 1
        return tuple(b for b in self.token_budgets if b is None or b >= fewest) or (None,)

    def hash(self, trace_sha256: str | None) -> str:
        """Names the question with its trace: equal hashes, equal plans."""
        parts = [
            getattr(self, name) for name in self.__slots__ if name not in ("scenario", "trace")
        ]
        files = contents_of_files(self.scenario, self.preference.file)
        text = repr((__version__, self.scenario.hash, self.replicas, trace_sha256, *files, *parts))
        return hashlib.sha256(text.encode()).hexdigest()


CALIBRATION = {"measured": 0.10}
ASSUMED_CALIBRATION = 0.20
"""Half-widths where the question names none: a cost model that was not measured on the GPU is not
known better than that."""


def calibration(question: Question, label: str) -> float:
    """Half-width of the interval of the engine's speed, as a share."""
    return half_width(label) if question.calibration is None else question.calibration


def half_width(label: str) -> float:
    """By how much times of a kind may be wrong, as a share; what was not timed is not measured."""
    kind = "" if "extrapolated" in label else label.partition(" ")[0]
    return CALIBRATION.get(kind, ASSUMED_CALIBRATION)


def _among(flag: str, said: Iterable[tuple[str | None, float]], gpus: Iterable[str]) -> None:
    """A price of a GPU that is not asked about is a slip of the pen."""
    asked = list(dict.fromkeys(load_gpu(name).name for name in gpus))
    for name, usd in said:
        if name is not None and name not in asked:
            raise ConfigError(
                f"{flag} {name}={usd:g}: the plan does not ask about that GPU; accepted: {', '.join(asked)}"
            )


def _within(flag: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{flag} {value:g}: must be from {least:g} to {most:g}")
