"""The observer's requests: prompts that somebody sent a while ago, and prompts that nobody sent.

A repeat is the beginning of a request. A control has the part of such a beginning that other targets
have as well (a system prompt, say, which the observer may know) and differs after it. So both are alike
in all but whether somebody else has sent the rest, and what the observer's own probes leave in the
cache helps both alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, NamedTuple

from kvsim.core import Request, packed
from kvsim.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

OBSERVER = "kvsim:observer"
"""Tenant and user of the probes."""
UNNAMED = "kvsim:unnamed"
"""Tenant and user of requests that name none: together they are one."""
FEWEST = 20
"""Probes of each kind that tell anything."""
LENGTHS = tuple(1 << power for power in range(4, 18))
"""Tokens of a beginning to choose from, if none are asked for."""
BETWEEN = tuple(eighths << power for power in range(1, 15) for eighths in range(8, 16))
"""Steps between them, for where none of these leaves enough beginnings."""

Beginning = tuple[int, ...]
"""Hash ids, and before them the tokens that each stands for."""


@dataclass(frozen=True, slots=True)
class Probing:
    """How the observer asks."""

    probes: int = 400
    """Half of them repeat a prompt; none repeats what another did."""
    tokens: int | None = None
    """Of a repeated beginning, in whole hash blocks; None: where most prompts of a trace differ.

    Each probe has one token of its own besides.
    """
    lag: float = 10.0
    """Seconds from a request to the probe that repeats its beginning."""

    def __post_init__(self) -> None:
        if self.probes < 2 * FEWEST or self.probes % 2:
            raise ConfigError(
                f"--probes is {self.probes}; accepted: an even number from {2 * FEWEST}"
            )
        if self.tokens is not None and self.tokens < 1:
            raise ConfigError(f"--probe-tokens is {self.tokens}; accepted: a number from 1")
        if not 0 <= self.lag <= 1e8:
            raise ConfigError(f"--lag is {self.lag}; accepted: seconds from 0 to 1e8")


class Watched(NamedTuple):
    """A trace with an observer in it."""

    requests: list[Request]
    tokens: int
    """Of a repeated beginning."""
    repeats: Mapping[int, int]
    """By row, probes whose beginning was sent before: how many of its tokens other targets share."""
    controls: Mapping[int, int]
    """The same of those whose beginning nobody sent, but for these tokens."""


class Target(NamedTuple):
    """A request whose beginning is probed."""

    request: Request
    beginning: Beginning
    shared: int
    """Hash ids that another target's beginning has as well."""


def watched(
    trace: Iterable[Request], probing: Probing, name: str, rng: np.random.Generator
) -> Watched:
    """The requests of a trace with probes at their times, all rows counted anew.

    There are fewer probes where a trace has fewer different beginnings. ConfigError if they are too
    few to tell anything.
    """
    requests = list(trace)
    tokens = probing.tokens or _chosen(requests)
    targets = _targets(requests, tokens, probing.probes, rng)
    if len(targets) < 2 * FEWEST:
        raise ConfigError(
            f"{name}: has {len(targets)} different beginnings of {tokens} tokens (in whole hash "
            f"blocks, of requests with a time); accepted: {2 * FEWEST} or more, or another "
            "--probe-tokens"
        )
    half = len(targets) // 2
    repeats = [_probe(one, probing.lag, one.beginning[1:]) for one in targets[:half]]
    controls = [_control(one, probing.lag, rng) for one in targets[half : 2 * half]]
    return _merged([_owned(request) for request in requests], tokens, repeats, controls)


def _chosen(requests: Seq[Request]) -> int:
    """Where most beginnings differ, or the most tokens that leave enough of them."""
    best = max(LENGTHS, key=lambda length: len(_beginnings(requests, length)))
    enough = (n for n in reversed(BETWEEN) if len(_beginnings(requests, n)) >= 2 * FEWEST)
    return best if len(_beginnings(requests, best)) >= 2 * FEWEST else next(enough, best)


def _beginnings(requests: Seq[Request], tokens: int) -> dict[Beginning, Request]:
    """The different beginnings of that length of requests with a time, and one request of each."""
    found: dict[Beginning, Request] = {}
    for request in requests:
        ids, size = request.hash_ids, request.hash_block
        if request.arrival is None or not ids or tokens < size:
            continue
        if request.prompt_tokens >= tokens and len(ids) >= tokens // size:
            found.setdefault((size, *ids[: tokens // size]), request)
    return found


def _targets(
    requests: Seq[Request], tokens: int, most: int, rng: np.random.Generator
) -> list[Target]:
    """Up to ``most`` requests in random order, one for each different beginning."""
    order = rng.permutation(len(requests)).tolist()
    found = _beginnings([requests[place] for place in order], tokens)
    beginnings = list(found)[:most]
    shared = dict.fromkeys(beginnings, 1)
    for one, other in pairwise(sorted(beginnings)):
        agree = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
        common = sum(1 for _ in agree)
        shared[one], shared[other] = max(shared[one], common), max(shared[other], common)
    return [Target(found[own], own, max(0, shared[own] - 1)) for own in beginnings]


class _Probe(NamedTuple):
    request: Request
    shared: int
    """Tokens that other targets have as well."""


def _control(target: Target, lag: float, rng: np.random.Generator) -> _Probe:
    """What the target's beginning shares with others, and then what nobody sent."""
    known = target.beginning[1 : 1 + target.shared]
    fresh = len(target.beginning) - 1 - target.shared
    return _probe(target, lag, (*known, *rng.integers(1 << 63, size=fresh).tolist()))


def _probe(target: Target, lag: float, ids: Seq[int]) -> _Probe:
    """A request for one token, ``lag`` seconds after the target."""
    own, size = target.request, target.request.hash_block
    assert own.arrival is not None
    request = Request(
        0,
        own.arrival + lag,
        len(ids) * size + 1,
        1,
        packed(ids),
        size,
        tenant=OBSERVER,
        user=OBSERVER,
    )
    return _Probe(request, target.shared * size)


def _owned(request: Request) -> Request:
    return request._replace(tenant=request.tenant or UNNAMED, user=request.user or UNNAMED)


def _merged(
    requests: Seq[Request], tokens: int, repeats: Seq[_Probe], controls: Seq[_Probe]
) -> Watched:
    """All in order of time; a turn stays behind the request that it followed."""
    timed = [(at, 0, _Probe(own, 0)) for at, own in _stamped(requests)]
    for kind, probes in enumerate((repeats, controls), 1):
        timed += [(probe.request.arrival or 0.0, kind, probe) for probe in probes]
    timed.sort(key=lambda item: item[0])
    rows: tuple[dict[int, int], ...] = ({}, {}, {})
    for row, (_, kind, probe) in enumerate(timed):
        rows[kind][row] = probe.shared
    merged = [probe.request._replace(row=row) for row, (_, _, probe) in enumerate(timed)]
    return Watched(merged, tokens, rows[1], rows[2])


def _stamped(requests: Seq[Request]) -> Iterator[tuple[float, Request]]:
    """Requests with the latest arrival so far, which stands for turns that have none."""
    latest = 0.0
    for request in requests:
        latest = latest if request.arrival is None else request.arrival
        yield latest, request
