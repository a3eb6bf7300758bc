"""Distributions of lengths (tokens) and of pauses (seconds), named as ``name:argument:argument``.

``fixed:512``, ``uniform:10:2000``, ``lognormal:MEAN:SIGMA``, ``gamma:MEAN:SHAPE``, ``exponential:MEAN``,
``geometric:MEAN``, ``zipf:EXPONENT:MAXIMUM``, ``fit:TRACE`` (the values of a trace, drawn with
replacement) and ``fit-lognormal:TRACE``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Protocol

from kvsim.core import Request
from kvsim.errors import ConfigError, unknown
from kvsim.workload.trace import open_trace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


class Distribution(Protocol):
    """Positive numbers, drawn many at once."""

    @property
    def mean(self) -> float:
        """Their expectation."""
        ...

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        """``count`` independent values."""
        ...


def require(holds: bool, what: str, accepted: str) -> None:
    """Refuse a distribution's argument. Written so that a NaN, which holds nothing, is refused."""
    if not holds:
        raise ConfigError(f"{what} cannot be used; accepted: {accepted}")


def is_positive(*numbers: float) -> bool:
    """Whether all are finite and above 0."""
    return all(0 < number < math.inf for number in numbers)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same value."""

    form: ClassVar[str] = "fixed:VALUE"
    value: float

    def __post_init__(self) -> None:
        require(0 <= self.value < math.inf, f"fixed:{self.value:g}", "a value of 0 or more")

    @property
    def mean(self) -> float:
        return self.value

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        import numpy as np

        return np.full(count, self.value)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Evenly between two values."""

    form: ClassVar[str] = "uniform:LOW:HIGH"
    low: float
    high: float

    def __post_init__(self) -> None:
        what = f"uniform:{self.low:g}:{self.high:g}"
        require(0 <= self.low <= self.high < math.inf, what, "0 <= LOW <= HIGH")

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        return rng.uniform(self.low, self.high, count)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Log-normal, by the mean of the values and the standard deviation of their logarithm."""

    form: ClassVar[str] = "lognormal:MEAN:SIGMA"
    average: float
    sigma: float

    def __post_init__(self) -> None:
        what = f"lognormal:{self.average:g}:{self.sigma:g}"
        require(
            is_positive(self.average) and 0 <= self.sigma <= 10, what, "MEAN > 0, SIGMA 0 to 10"
        )

    @property
    def mean(self) -> float:
        return self.average

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        return rng.lognormal(math.log(self.average) - self.sigma**2 / 2, self.sigma, count)


@dataclass(frozen=True, slots=True)
class Gamma:
    """Gamma, by its mean and shape."""

    form: ClassVar[str] = "gamma:MEAN:SHAPE"
    average: float
    shape: float

    def __post_init__(self) -> None:
        what = f"gamma:{self.average:g}:{self.shape:g}"
        require(is_positive(self.average, self.shape), what, "MEAN > 0, SHAPE > 0")

    @property
    def mean(self) -> float:
        return self.average

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        return rng.gamma(self.shape, self.average / self.shape, count)


@dataclass(frozen=True, slots=True)
class Exponential:
    """Exponential, by its mean."""

    form: ClassVar[str] = "exponential:MEAN"
    average: float

    def __post_init__(self) -> None:
        require(is_positive(self.average), f"exponential:{self.average:g}", "MEAN > 0")

    @property
    def mean(self) -> float:
        return self.average

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        return rng.exponential(self.average, count)


@dataclass(frozen=True, slots=True)
class Geometric:
    """Whole numbers from 1 on, each next one less likely by the same factor."""

    form: ClassVar[str] = "geometric:MEAN"
    average: float

    def __post_init__(self) -> None:
        what = f"geometric:{self.average:g}"
        require(1 <= self.average < math.inf, what, "MEAN of 1 or more")

    @property
    def mean(self) -> float:
        return self.average

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        return rng.geometric(1 / self.average, count).astype(float)


@dataclass(frozen=True, slots=True)
class Zipf:
    """Whole numbers from 1 to a maximum, in proportion to ``1 / number ** exponent``."""

    form: ClassVar[str] = "zipf:EXPONENT:MAXIMUM"
    exponent: float
    maximum: float

    def __post_init__(self) -> None:
        what = f"zipf:{self.exponent:g}:{self.maximum:g}"
        whole = self.maximum.is_integer() and 1 <= self.maximum <= 1_000_000
        require(
            0 <= self.exponent <= 20 and whole,
            what,
            "EXPONENT 0 to 20, whole MAXIMUM 1 to 1,000,000",
        )

    @property
    def mean(self) -> float:
        import numpy as np

        return float(self._weights() @ np.arange(1, self.maximum + 1))

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        import numpy as np

        return np.add(choices(self._weights(), rng, count), 1, dtype=np.float64)

    def _weights(self) -> Floats:
        return zipf_weights(int(self.maximum), self.exponent)


@dataclass(frozen=True, slots=True)
class Empirical:
    """The values that were seen, each as likely as it was frequent."""

    form: ClassVar[str] = "fit:TRACE"
    values: Floats

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        drawn: Floats = self.values[rng.integers(len(self.values), size=count)]
        return drawn


def zipf_weights(count: int, exponent: float) -> Floats:
    """Probabilities of ranks 1 to ``count``, in proportion to ``1 / rank ** exponent``."""
    import numpy as np

    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    normalised: Floats = weights / weights.sum()
    return normalised


def choices(weights: Floats, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Indices drawn with these probabilities."""
    import numpy as np

    found = np.searchsorted(np.cumsum(weights), rng.random(count), side="right")
    return np.minimum(found, len(weights) - 1).astype(np.int64)


DISTRIBUTIONS: dict[str, Callable[..., Distribution]] = {
    "fixed": Fixed,
    "uniform": Uniform,
    "lognormal": LogNormal,
    "gamma": Gamma,
    "exponential": Exponential,
    "geometric": Geometric,
    "zipf": Zipf,
}
FORMS = "fixed:VALUE, uniform:LOW:HIGH, lognormal:MEAN:SIGMA, gamma:MEAN:SHAPE, exponential:MEAN, " \
    "geometric:MEAN, zipf:EXPONENT:MAXIMUM, fit:TRACE, fit-lognormal:TRACE"  # fmt: skip
Field = Callable[[Request], float | None]


def distribution(text: str, field: Field) -> Distribution:
    """The distribution that ``text`` names; a fit takes ``field`` of each request of a trace.

    Raises ``ConfigError`` for a name or arguments that do not exist, ``TraceError`` for the trace.
    """
    name, _, rest = text.partition(":")
    if name in ("fit", "fit-lognormal"):
        seen = _values(rest, field)
        return Empirical(seen) if name == "fit" else _log_normal_of(seen)
    if name not in DISTRIBUTIONS:
        raise unknown("distribution", name, [*DISTRIBUTIONS, "fit", "fit-lognormal"])
    kind = DISTRIBUTIONS[name]
    arguments = numbers(rest, text)
    if len(arguments) != len(fields(kind)):  # type: ignore[arg-type]
        raise ConfigError(f"{text!r} has {len(arguments)} arguments; accepted: {FORMS}")
    return kind(*arguments)


def numbers(text: str, whole: str) -> list[float]:
    """The numbers between colons."""
    try:
        return [float(part) for part in text.split(":")] if text else []
    except ValueError:
        raise ConfigError(
            f"{whole!r} has an argument that is no number; accepted: {FORMS}"
        ) from None


def _values(path: str, field: Field) -> Floats:
    import numpy as np

    seen = (field(request) for request in open_trace(path))
    values = np.fromiter((value for value in seen if value is not None), dtype=np.float64)
    if len(values) == 0:
        raise ConfigError(f"fit:{path}: the trace has no such values; accepted: one that has some")
    return values


def _log_normal_of(values: Floats) -> LogNormal:
    """The log-normal of greatest likelihood (values of 0 count as the smallest above)."""
    import numpy as np

    positive = values[values > 0]
    if len(positive) == 0:
        raise ConfigError("fit-lognormal needs values above 0; accepted: a trace that has some")
    logs = np.log(np.maximum(values, positive.min()))
    sigma = float(logs.std())
    return LogNormal(math.exp(float(logs.mean()) + sigma**2 / 2), sigma)
