"""Arrival processes of generated workloads, named as ``name:argument:argument``.

``poisson``; ``gamma:SHAPE`` (gaps of coefficient of variation 1/sqrt(SHAPE)); ``mmpp:FACTOR:SHARE:SECONDS``
(a Poisson process that is FACTOR times as fast during bursts, which last SECONDS on average and take
SHARE of the time); ``uniform`` (evenly spaced). Each has the mean rate that is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kvsim.errors import ConfigError, unknown
from kvsim.workload.distributions import is_positive, require
from kvsim.workload.timeline import SHAPES

if TYPE_CHECKING:
    import numpy as np

    from kvsim.workload.distributions import Floats

CHUNK = 4096
"""Arrivals drawn at once."""
FEWEST = 0.01
"""Arrivals in a period of a modulated process, on average."""


class Process(Protocol):
    """When requests arrive."""

    def times(self, rate: float, rng: np.random.Generator) -> Iterator[Floats]:
        """Rising times from 0 on, seconds, ``CHUNK`` at once, without end; ``rate`` a second."""
        ...


@dataclass(frozen=True, slots=True)
class Uniform:
    """One request every ``1 / rate`` seconds, the first at 0."""

    def times(self, rate: float, rng: np.random.Generator) -> Iterator[Floats]:
        import numpy as np

        count = 0
        while True:
            yield np.arange(count, count + CHUNK) / rate
            count += CHUNK


@dataclass(frozen=True, slots=True)
class Renewal:
    """Independent gamma gaps of this shape; 1 is the Poisson process."""

    shape: float = 1.0

    def __post_init__(self) -> None:
        least, most = SHAPES
        accepted = f"gamma:SHAPE with SHAPE from {least:g} to {most:g}"
        require(least <= self.shape <= most, f"gamma:{self.shape:g}", accepted)

    def times(self, rate: float, rng: np.random.Generator) -> Iterator[Floats]:
        now = 0.0
        while True:
            times = now + rng.gamma(self.shape, 1 / (rate * self.shape), CHUNK).cumsum()
            now = float(times[-1])
            yield times


@dataclass(frozen=True, slots=True)
class Mmpp:
    """A Markov-modulated Poisson process of two states, quiet and burst.

    Drawn as a unit Poisson process in the time scale in which the intensity is 1: the integral of the
    intensity is piecewise linear, and its inverse takes those times back to seconds.
    """

    factor: float
    share: float
    seconds: float

    def __post_init__(self) -> None:
        what = f"mmpp:{self.factor:g}:{self.share:g}:{self.seconds:g}"
        good = 1 <= self.factor < math.inf and 0 < self.share < 1 and is_positive(self.seconds)
        require(
            good, what, "mmpp:FACTOR:SHARE:SECONDS with FACTOR >= 1, 0 < SHARE < 1, SECONDS > 0"
        )

    def times(self, rate: float, rng: np.random.Generator) -> Iterator[Floats]:
        import numpy as np

        cycle = self.seconds / self.share
        require(
            rate * cycle >= FEWEST,
            f"mmpp with bursts every {cycle:g} s at {rate:g} requests a second",
            f"at least {FEWEST:g} requests from burst to burst; faster ones are a Poisson process",
        )
        clock, intensity = np.zeros(1), np.zeros(1)
        reached = 0.0
        while True:
            wanted = reached + rng.exponential(1.0, CHUNK).cumsum()
            reached = float(wanted[-1])
            while intensity[-1] < reached:
                more_clock, more_intensity = self._sojourns(rate, rng)
                clock = np.append(clock, clock[-1] + more_clock)
                intensity = np.append(intensity, intensity[-1] + more_intensity)
            yield np.interp(wanted, intensity, clock)
            passed = int(np.searchsorted(intensity, reached, side="right")) - 1
            clock, intensity = clock[passed:], intensity[passed:]

    def _sojourns(self, rate: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """The ends of the next quiet and burst periods, in seconds and in expected arrivals."""
        import numpy as np

        quiet = rate / (1 - self.share + self.share * self.factor)
        mean = (self.seconds * (1 - self.share) / self.share, self.seconds)
        stays = rng.exponential(mean, (CHUNK, 2)).ravel()
        rates = np.tile((quiet, quiet * self.factor), CHUNK)
        return stays.cumsum(), (stays * rates).cumsum()


PROCESSES: dict[str, Callable[..., Process]] = {
    "poisson": Renewal,
    "gamma": Renewal,
    "mmpp": Mmpp,
    "uniform": Uniform,
}
FORMS = "poisson, gamma:SHAPE, mmpp:FACTOR:SHARE:SECONDS, uniform"


def arrival_process(text: str) -> Process:
    """The process that ``text`` names. Raises ``ConfigError`` when there is none."""
    name, _, rest = text.partition(":")
    if name not in PROCESSES:
        raise unknown("arrival process", name, PROCESSES)
    try:
        arguments = [float(part) for part in rest.split(":")] if rest else []
    except ValueError:
        raise ConfigError(
            f"{text!r} has an argument that is no number; accepted: {FORMS}"
        ) from None
    needed = {"gamma": 1, "mmpp": 3}.get(name, 0)
    if len(arguments) != needed:
        raise ConfigError(f"{text!r} has {len(arguments)} arguments; accepted: {FORMS}")
    return PROCESSES[name](*arguments)
