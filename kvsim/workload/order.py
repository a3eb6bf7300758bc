"""Arrivals in the order of time: small disorder is sorted on the fly, more of it is refused."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import chain

from kvsim.core import Request
from kvsim.errors import TraceError
from kvsim.workload.ledger import Ledger

WINDOW = 1024
"""Requests that are held back, among which order is made."""


def in_time_order(requests: Iterator[Request], ledger: Ledger, name: str) -> Iterator[Request]:
    """The requests by arrival, equal ones as in the file; a later turn stays behind the one before.

    Raises ``TraceError`` at a request that arrives before one that has already been passed on.
    """
    held: deque[Request] = deque()
    times: deque[float] = deque()
    latest = passed = -math.inf
    for request in requests:
        arrival = request.arrival
        if arrival is None or arrival >= latest:
            latest = latest if arrival is None else arrival
            held.append(request)
            times.append(latest)
        else:
            _check(arrival, passed, ledger, name)
            place = bisect_right(times, arrival)
            times.insert(place, arrival)
            held.insert(place, request)
        if len(held) > WINDOW:
            passed = times.popleft()
            yield held.popleft()
    yield from held


def _check(arrival: float, passed: float, ledger: Ledger, name: str) -> None:
    ledger.note("rows slightly out of time order, sorted")
    if arrival < passed:
        raise TraceError(
            f"{name}:{ledger.line}: the row is {passed - arrival:g} s earlier than one more than {WINDOW} "
            "rows before; accepted: rows in time order (kvsim trace convert --sort makes it)"
        )


def sorted_by_time(requests: Iterator[Request]) -> Iterator[Request]:
    """All requests by arrival, however disordered; holds the whole trace in memory."""
    of_session: dict[str, float] = {}

    def time(request: Request) -> float:
        when = request.arrival
        if when is None:
            return of_session.get(request.session or "", math.inf)
        if request.session is not None:
            of_session[request.session] = when
        return when

    timed = [(time(request), request) for request in requests]
    timed.sort(key=lambda pair: pair[0])
    return (request for _, request in timed)


def from_zero(requests: Iterator[Request]) -> Iterator[Request]:
    """The same, moved so that no arrival is below 0: a file's first row need not be its earliest."""
    first = next(requests, None)
    if first is None:
        return
    every = chain([first], requests)
    if first.arrival is None or first.arrival >= 0:
        yield from every
        return
    for request in every:
        if request.arrival is not None:
            request = request._replace(arrival=request.arrival - first.arrival)
        yield request
