"""The situations that a deployment may be in, each cut out of a trace: what is asked, by how many.

A technique that doubles the throughput of long prompts from many users may do nothing for one user.
So every situation gets requests of its own from the trace: those whose length belongs to it, asked one
after another, or by many clients of whom each asks again as soon as it is answered (a closed loop:
the load is what the engine can bear, whatever it is), or as they were recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from kvsim.core import Request

SHORT = 4_096
"""Most tokens of prompt and answer of a short text."""
LONG = 131_072
"""Most tokens of a long text; beyond is a row of its own."""
FEWEST = 30
"""Requests below which a situation says nothing."""
FEWEST_CLIENTS = 8
"""Clients from which there is concurrency worth the name."""
SHARE = 4
"""Conversations that each client should have at least."""


class Situation(NamedTuple):
    """A row of the table."""

    name: str
    shortest: int = 0
    longest: int | None = None
    """Tokens of prompt and answer."""
    clients: int | None = None
    """Who ask at once; None: as recorded."""
    gpu: str | None = None
    """Another GPU than the one asked about."""


def situations(clients: int, edge: str) -> list[Situation]:
    """All rows: the traffic as it is, short and long texts by one and by many, the extremes."""
    return [
        Situation("your traffic, as recorded"),
        Situation("short texts, one at a time", 0, SHORT, 1),
        Situation("short texts, many at once", 0, SHORT, clients),
        Situation("long texts, one at a time", SHORT + 1, LONG, 1),
        Situation("long texts, many at once", SHORT + 1, LONG, clients),
        Situation("beyond 128K tokens", LONG + 1, None, 1),
        Situation(f"edge: one user, {edge}", 0, None, 1, edge),
    ]


class Cut(NamedTuple):
    """The requests of a situation."""

    requests: tuple[Request, ...]
    clients: int | None
    lack: str | None
    """Why they are not enough to say anything; None if they are."""


def cut(requests: Iterable[Request], situation: Situation, most: int) -> Cut:
    """The first ``most`` requests of a trace that belong to a situation, as it asks them."""
    chosen = tuple(islice((r for r in requests if belongs(r, situation)), most))
    if len(chosen) < FEWEST:
        return Cut(chosen, None, f"{len(chosen)} requests of the trace are so, {FEWEST} are needed")
    if situation.clients is None:
        return Cut(chosen, None, None)
    talks = conversations(chosen)
    clients = min(situation.clients, max(1, len(talks) // SHARE))
    if situation.clients > 1 and clients < FEWEST_CLIENTS:
        needed = SHARE * FEWEST_CLIENTS
        return Cut(chosen, clients, f"{len(talks)} conversations are so, {needed} are needed")
    return Cut(tuple(asked(talks, clients)), clients, None)


def belongs(request: Request, situation: Situation) -> bool:
    """Whether a request has the length of a situation."""
    tokens = request.prompt_tokens + request.output_tokens
    return situation.shortest <= tokens and (
        situation.longest is None or tokens <= situation.longest
    )


def conversations(requests: Iterable[Request]) -> list[list[Request]]:
    """Sessions, each with its turns in order; a request without one is a session of its own."""
    found: dict[object, list[Request]] = {}
    for request in requests:
        key = request.row if request.session is None else request.session
        found.setdefault(key, []).append(request)
    return list(found.values())


def asked(talks: list[list[Request]], clients: int) -> Iterator[Request]:
    """The same requests from clients of whom each asks again as soon as it is answered."""
    turns = (
        request._replace(arrival=None, session=f"client {number % clients}", think_time=0.0)
        for number, talk in enumerate(talks)
        for request in talk
    )
    begun: set[str | None] = set()
    first: list[Request] = []
    later: list[Request] = []
    for turn in turns:
        if turn.session in begun:
            later.append(turn)
        else:
            begun.add(turn.session)
            first.append(turn._replace(arrival=0.0, think_time=None))
    return (request._replace(row=row) for row, request in enumerate([*first, *later]))
