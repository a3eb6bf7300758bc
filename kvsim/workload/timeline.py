"""Which part of a trace is replayed, and when its requests arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kvsim.core import Request
from kvsim.errors import ConfigError
from kvsim.workload.fields import MAX_SECONDS

if TYPE_CHECKING:
    from numpy.random import Generator

_DRAWN_AT_ONCE = 4096
SHAPES = (1e-3, 1e6)
"""Least and largest shape of gamma gaps: outside they are nothing but 0, or but their mean."""


def window(requests: Iterator[Request], start: float, duration: float) -> Iterator[Request]:
    """The requests that arrive from ``start`` on, for ``duration`` seconds, counted from ``start``.

    A later turn of a session belongs to the window if the turn before it does.
    """
    inside: set[str] = set()
    for request in requests:
        arrival, session = request.arrival, request.session
        if arrival is None:
            if session in inside:
                yield request
        elif start <= arrival < start + duration:
            if session is not None:
                inside.add(session)
            yield request._replace(arrival=arrival - start)
        elif arrival >= start + duration and not inside:
            return


class Pace(NamedTuple):
    """What is known of a trace's arrivals after one pass over it."""

    arrivals: int
    first: float
    last: float

    @property
    def rate(self) -> float | None:
        """Arrivals a second; None when all come at one instant."""
        span = self.last - self.first
        return (self.arrivals - 1) / span if span > 0 else None


def pace(requests: Iterator[Request]) -> Pace:
    """Count the arrivals (later turns of sessions are not arrivals) and note their span."""
    count = 0
    first = last = 0.0
    for request in requests:
        if request.arrival is not None:
            last = request.arrival
            first = last if count == 0 else first
            count += 1
    return Pace(count, first, last)


def stretched(requests: Iterator[Request], factor: float) -> Iterator[Request]:
    """The same arrivals on a timeline ``factor`` times as long; think times stay."""
    for request in requests:
        if request.arrival is not None:
            request = request._replace(arrival=request.arrival * factor)
        yield request


def sped_up(requests: Iterator[Request], speedup: float) -> Iterator[Request]:
    """The same with arrivals and think times divided by ``speedup``."""
    for request in requests:
        arrival, think_time = request.arrival, request.think_time
        yield request._replace(
            arrival=None if arrival is None else arrival / speedup,
            think_time=None if think_time is None else think_time / speedup,
        )


def redrawn(requests: Iterator[Request], gaps: Iterator[float]) -> Iterator[Request]:
    """The same requests in the same order, each arriving the next gap after the one before."""
    now = 0.0
    for request in requests:
        if request.arrival is not None:
            now += next(gaps)
            request = request._replace(arrival=now)
        yield request


def within_bounds(requests: Iterator[Request]) -> Iterator[Request]:
    """The same requests; ``ConfigError`` when they are spread over more time than is believed."""
    for request in requests:
        at = request.think_time if request.arrival is None else request.arrival
        if at is not None and at > MAX_SECONDS:
            raise ConfigError(
                f"--rate, --request-rate or --speedup spreads requests over {at:g} s; accepted: at "
                f"most {MAX_SECONDS:,.0f} s"
            )
        yield request


def gamma_gaps(rate: float, burstiness: float, rng: Generator) -> Iterator[float]:
    """Gaps of a gamma renewal process, seconds, as vLLM's bench draws them.

    ``burstiness`` is the shape: 1 is a Poisson process, below 1 is burstier (CV = 1/sqrt(shape)).
    """
    scale = 1.0 / (rate * burstiness)
    while True:
        yield from rng.gamma(burstiness, scale, _DRAWN_AT_ONCE).tolist()
