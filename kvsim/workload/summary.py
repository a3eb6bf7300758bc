"""What a trace holds: counts, lengths, arrivals, the reuse it offers, and what is odd about it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from kvsim.core import Request
from kvsim.workload.prefixes import IdealCache
from kvsim.workload.trace import Trace

MS_FORMATS = frozenset({"mooncake"})
FAST_RATE = 500.0
"""Requests a second from which a trace of milliseconds is suspected to hold seconds."""
SLOW_GAP = 90.0
"""Mean seconds between whole-numbered arrivals from which seconds are suspected to be ms."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, percentiles and extremes of one quantity."""

    total: float
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When requests arrive; later turns of closed-loop sessions do not count."""

    count: int
    duration: float
    """From the first to the last, seconds."""
    rate: float | None
    mean_gap: float | None
    cv: float | None
    """Standard deviation of the gaps by their mean: 1 for a Poisson process, more is bursty."""
    distinct_stamps: int


@dataclass(frozen=True, slots=True)
class Reuse:
    """Hits of an unbounded prefix cache."""

    blocks: int
    block_hits: int
    block_hit_ratio: float
    token_hits: int
    token_hit_ratio: float
    """Of all prompt tokens, those with ids and those without."""
    distinct_blocks: int


@dataclass(frozen=True, slots=True)
class Summary:
    """A trace in numbers."""

    name: str
    format: str
    sha256: str
    requests: int
    skipped: int
    sessions: int
    closed_loop_turns: int
    """Turns that arrive a think time after the end of the turn before."""
    prompt_tokens: Spread
    output_tokens: Spread
    arrivals: Arrivals
    prefix: Reuse
    quirks: list[str]
    suspicions: list[str]

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


class _Columns:
    """What is kept of the requests: numbers in arrays, 8 bytes each."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self.prompts = array("q")
        self.outputs = array("q")
        self.times = array("d")
        self.sessions: set[str] = set()
        self.cache = IdealCache()
        for request in requests:
            self._add(request)

    def _add(self, request: Request) -> None:
        self.prompts.append(request.prompt_tokens)
        self.outputs.append(request.output_tokens)
        if request.arrival is not None:
            self.times.append(request.arrival)
        if request.session is not None:
            self.sessions.add(request.session)
        self.cache.add(request)


def summarise(trace: Trace) -> Summary:
    """Read a trace once and say what it holds. Raises what reading it raises."""
    columns = _Columns(trace)
    arrivals = _arrivals(columns.times)
    return Summary(
        name=trace.name,
        format=trace.format,
        sha256=trace.sha256(),
        requests=len(columns.prompts),
        skipped=trace.skipped,
        sessions=len(columns.sessions),
        closed_loop_turns=len(columns.prompts) - len(columns.times),
        prompt_tokens=_spread(columns.prompts),
        output_tokens=_spread(columns.outputs),
        arrivals=arrivals,
        prefix=_reuse(columns),
        quirks=trace.quirks,
        suspicions=_suspicions(trace, arrivals, columns.times),
    )


def _spread(values: array[int]) -> Spread:
    import numpy as np

    numbers = np.frombuffer(values, dtype=np.int64)
    p50, p90, p99 = (float(p) for p in np.percentile(numbers, (50, 90, 99)))
    return Spread(int(numbers.sum()), float(numbers.mean()), p50, p90, p99, int(numbers.max()))


def _arrivals(times: array[float]) -> Arrivals:
    import numpy as np

    stamps = np.frombuffer(times, dtype=np.float64)
    distinct = len(np.unique(stamps))
    span = float(stamps[-1] - stamps[0])
    if span <= 0:
        return Arrivals(len(times), span, None, None, None, distinct)
    gaps = np.diff(stamps)
    mean = span / len(gaps)
    return Arrivals(len(times), span, 1 / mean, mean, float(gaps.std()) / mean, distinct)


def _reuse(columns: _Columns) -> Reuse:
    cache = columns.cache
    return Reuse(
        blocks=cache.blocks,
        block_hits=cache.block_hits,
        block_hit_ratio=cache.block_hits / cache.blocks if cache.blocks else 0.0,
        token_hits=cache.token_hits,
        token_hit_ratio=cache.token_hits / sum(columns.prompts),
        distinct_blocks=cache.distinct_blocks,
    )


def _suspicions(trace: Trace, arrivals: Arrivals, times: array[float]) -> list[str]:
    """Signs that the times are in another unit than the format's, with the remedy."""
    rate, gap = arrivals.rate, arrivals.mean_gap
    if rate is None or gap is None:
        return []
    if trace.format in MS_FORMATS and rate >= FAST_RATE:
        return [
            f"{rate:,.0f} requests a second: the timestamps may be seconds, not ms "
            "(--speedup 0.001 makes them so)"
        ]
    if gap >= SLOW_GAP and all(time.is_integer() for time in times):
        return [
            f"one request every {gap:,.0f} s at whole seconds: the times may be milliseconds "
            "(--speedup 1000 makes them so)"
        ]
    return []
