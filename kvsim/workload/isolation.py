"""Who may reuse whose prefixes: namespaces of the prefix cache, as a salt makes them.

A salt enters the hash of a prompt's first block only; every later block is known by all that precedes
it, so two prompts of different namespaces share nothing from their first token on (vLLM's
``cache_salt``, SGLang's ``extra_key``). A trace names content by hash ids, so here the first id is
replaced by a hash of itself and its namespace. Ids have 64 bits: that two of a million salted ids meet
has a chance of 3e-8.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Literal

from kvsim.core import Request
from kvsim.errors import ConfigError

Isolation = Literal["global", "tenant", "user", "session"]


def isolated(requests: Iterable[Request], isolation: Isolation, trace: str) -> Iterator[Request]:
    """The requests, with content named apart for each namespace; under ``global`` as they are.

    A request without a session is a session of its own. Raises ``ConfigError`` for a request that
    does not say whose it is, where that decides.
    """
    if isolation == "global":
        return iter(requests)
    return _isolated(requests, isolation, trace)


def _isolated(requests: Iterable[Request], isolation: Isolation, trace: str) -> Iterator[Request]:
    for request in requests:
        yield salted(request, namespace(request, isolation, trace)) if request.hash_ids else request


def namespace(request: Request, isolation: Isolation, trace: str) -> tuple[object, ...]:
    """What tells a request's namespace from others; a user is one of its tenant."""
    if isolation == "session":
        own = request.row if request.session is None else request.session
        return (request.tenant, request.user, own)
    if request.tenant is None or (isolation == "user" and request.user is None):
        missing = "tenant" if request.tenant is None else "user"
        raise ConfigError(
            f"{trace}: request {request.row} has no {missing!r}, by which --isolation {isolation} "
            "tells requests apart; accepted: a trace that names it, or --isolation global or session"
        )
    return (request.tenant,) if isolation == "tenant" else (request.tenant, request.user)


def salted(request: Request, salt: tuple[object, ...]) -> Request:
    """The request with the first of its hash ids bound to a salt."""
    assert request.hash_ids
    ids = array("Q", request.hash_ids)
    keyed = repr((ids[0], *salt)).encode()
    ids[0] = int.from_bytes(blake2b(keyed, digest_size=8).digest(), "big")
    return request._replace(hash_ids=ids)
