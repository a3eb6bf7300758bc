"""Service-level objectives as people write them: ``ttft=2s``, ``tpot=50ms``, ``ttft_p99=1.5s``.

An objective without a statistic holds for each request (goodput counts those that meet all); one
with a statistic holds for the whole run (``--fail-on``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kvsim.errors import ConfigError, SloError, unknown

PER_REQUEST = ("ttft", "tpot", "e2el", "queue_time", "normalized_latency")
LATENCIES = (*PER_REQUEST, "itl")
STATISTICS = ("mean", "median", "std", "p50", "p90", "p95", "p99")
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}

_LIMIT = re.compile(r"(?P<number>[+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(?P<unit>s|ms|us)?")


class Bound(NamedTuple):
    """An upper limit on one latency statistic of a run."""

    metric: str
    statistic: str
    limit: float
    """Seconds."""

    @property
    def key(self) -> str:
        """Its key in ``summary.json``."""
        return f"{self.statistic}_{self.metric}_ms"


def read_slos(given: object) -> object:
    """Objectives per request, seconds by metric, from a table or a list of texts."""
    if isinstance(given, str):
        given = [given]
    if isinstance(given, Mapping):
        return {_per_request(name): _limit(name, value) for name, value in given.items()}
    if not isinstance(given, Iterable):
        raise ConfigError(f"slo = {given!r}: must be like ttft=2s")
    texts = [str(text) for text in given]
    return {_per_request(name): limit for name, limit in map(_split, texts)}


def read_bound(text: str) -> Bound:
    """A limit on a run from text like ``ttft_p99=2s``; without a statistic, the mean."""
    name, limit = _split(text)
    metric, statistic = _parts(name)
    if metric not in LATENCIES:
        raise unknown("latency", metric, LATENCIES)
    return Bound(metric, statistic or "mean", limit)


def _parts(name: str) -> tuple[str, str | None]:
    """``ttft_p99`` as ``ttft`` and ``p99``; ``queue_time`` has no statistic."""
    metric, _, statistic = name.rpartition("_")
    if name in LATENCIES or not metric:
        return name, None
    if metric in LATENCIES and statistic not in STATISTICS:
        raise unknown("statistic", statistic, STATISTICS)
    return metric, statistic


def require(bounds: Iterable[Bound], summary: Mapping[str, object]) -> None:
    """Raise :class:`SloError` for the first bound that a summary breaks or does not answer."""
    for bound in bounds:
        seen = summary.get(bound.key)
        if not isinstance(seen, int | float):
            raise SloError(f"the run has no {bound.key}, so it cannot meet its limit")
        if not seen <= bound.limit * 1e3:
            raise SloError(f"{bound.key} is {seen:.6g} ms, more than {bound.limit * 1e3:.6g} ms")


def _split(text: str) -> tuple[str, float]:
    name, separator, value = text.partition("=")
    if not separator:
        # `--goodput ttft:500` of the engine's benchmark: milliseconds.
        name, separator, value = text.partition(":")
        value = f"{value}ms" if value and value[-1].isdigit() else value
    if not separator:
        raise ConfigError(f"objective {text!r} must be like ttft=2s, tpot=50ms or ttft:500")
    return name.strip(), _limit(name, value.strip())


def _per_request(name: str) -> str:
    metric, statistic = _parts(name)
    if metric in PER_REQUEST and statistic:
        raise ConfigError(
            f"objective {name!r}: goodput is judged request by request; "
            "for a statistic of the run use --fail-on"
        )
    if name not in PER_REQUEST:
        raise unknown("objective", name, PER_REQUEST)
    return name


def _limit(name: str, value: object) -> float:
    """Seconds; a plain number is seconds when it comes from a table, and needs a unit in text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        found = _LIMIT.fullmatch(str(value))
        if found is None or not found["unit"]:
            raise ConfigError(f"objective {name}={value}: a time needs a unit: 2s, 50ms or 300us")
        seconds = float(found["number"]) * UNITS[found["unit"]]
    if not (math.isfinite(seconds) and seconds > 0):
        raise ConfigError(f"objective {name}={value}: must be above zero, as 2s")
    return seconds
