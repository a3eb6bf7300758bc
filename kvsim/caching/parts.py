"""Caches that quotas divide: each tenant's blocks are in a cache of its own, of its share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvsim.analysis.accesses import Accesses
from kvsim.caching.capacity import Capacity
from kvsim.caching.study import Caches, rate, whole
from kvsim.core import Request
from kvsim.memory.eviction import MakePolicy
from kvsim.quotas import NONE_LEFT, Quotas

ALL = "all"
"""Stands for all tenants together."""


@dataclass(frozen=True, slots=True)
class PartRow:
    """What one cache gave one tenant, or all of them."""

    policy: str
    capacity: str
    """Of the whole cache, as it was written."""
    tenant: str
    """``*``: those without a quota of their own, together; ``all``: everybody."""
    capacity_blocks: int | None
    """Of the tenant; ``None`` without limit."""
    prompt_tokens: int
    hit_tokens: int
    token_hit_rate: float | None


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    share: float
    prompt_tokens: int
    caches: Caches

    def row(self, policy: str, make: MakePolicy, capacity: Capacity) -> PartRow:
        """What the tenant finds in its own share of a cache."""
        blocks = capacity.blocks
        if (limit := whole(blocks)) is not None:
            blocks = int(self.share * limit + NONE_LEFT)
        found = self.caches.hits(policy, make, blocks).usable_tokens if self.caches.blocks else 0
        return PartRow(
            policy,
            capacity.text,
            self.name,
            whole(blocks),
            self.prompt_tokens,
            found,
            rate(found, self.prompt_tokens),
        )


class Owned(NamedTuple):
    """The requests of one tenant, or of all that share a quota."""

    name: str
    share: float
    requests: list[Request]


def divided(requests: Iterable[Request], shares: Mapping[str, float], trace: str) -> list[Owned]:
    """The requests by whose quota they count for, the one with most prompt tokens first.

    ConfigError for a request of nobody, and for a tenant that the quotas leave nothing.
    """
    quotas, owned = Quotas(shares), dict[str, list[Request]]()
    for request in requests:
        owned.setdefault(quotas.part(request, trace), []).append(request)
    parts = [Owned(name, quotas.share(name), own) for name, own in owned.items()]
    return sorted(parts, key=lambda part: (-prompt_tokens(part.requests), part.name))


def prompt_tokens(requests: Iterable[Request]) -> int:
    """Of all requests."""
    return sum(request.prompt_tokens for request in requests)


def parts_study(
    owned: Iterable[Owned],
    capacities: Sequence[Capacity],
    policies: Mapping[str, MakePolicy],
    accesses_of: Callable[[Iterable[Request]], Accesses],
) -> list[PartRow]:
    """For each policy and capacity what all tenants got, and then each."""
    parts = [
        _Part(name, share, prompt_tokens(own), Caches(accesses_of(own)))
        for name, share, own in owned
    ]
    rows = []
    for policy, make in policies.items():
        for capacity in capacities:
            found = [part.row(policy, make, capacity) for part in parts]
            rows += [_together(policy, capacity, found), *found]
    return rows


def _together(policy: str, capacity: Capacity, found: Sequence[PartRow]) -> PartRow:
    tokens, hits = sum(r.prompt_tokens for r in found), sum(r.hit_tokens for r in found)
    blocks = whole(capacity.blocks)
    return PartRow(policy, capacity.text, ALL, blocks, tokens, hits, rate(hits, tokens))
