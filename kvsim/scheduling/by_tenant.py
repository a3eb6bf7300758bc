"""Schedulers under quotas: a tenant at its bound keeps nobody else waiting."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from kvsim.core import Sequence
from kvsim.protocols import Allocator
from kvsim.scheduling.chunked import Chunked
from kvsim.scheduling.continuous import Continuous


class InParts(Allocator, Protocol):
    """Memory of which every tenant has a part."""

    short: Allocator | None
    """The part that refused last, or that ended the steps which there was room for."""

    def part(self, sequence: Sequence) -> Allocator:
        """The memory of the sequence's tenant."""
        ...


class Lines:
    """The queue, in a line for each tenant. Its places are the heads of the lines, by their order."""

    def __init__(self) -> None:
        self._lines: dict[str | None, deque[tuple[int, Sequence]]] = {}
        self._heads: list[tuple[int, str | None]] = []
        """The number of each line's first request, and whose line it is."""
        self._first = self._last = self._count = 0

    @property
    def places(self) -> int:
        """Tenants of whom somebody waits."""
        return len(self._heads)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Sequence]:
        return (sequence for line in self._lines.values() for _, sequence in line)

    def __getitem__(self, place: int) -> Sequence:
        return self._lines[self._heads[place][1]][0][1]

    def append(self, sequence: Sequence) -> None:
        """A request has arrived."""
        self._last += 1
        tenant = sequence.request.tenant
        line = self._lines.setdefault(tenant, deque())
        if not line:
            self._heads.append((self._last, tenant))
        line.append((self._last, sequence))
        self._count += 1

    def appendleft(self, sequence: Sequence) -> None:
        """A request was preempted: it goes before all others."""
        self._first -= 1
        tenant = sequence.request.tenant
        line = self._lines.setdefault(tenant, deque())
        if line:
            self._heads.remove((line[0][0], tenant))
        self._heads.insert(0, (self._first, tenant))
        line.appendleft((self._first, sequence))
        self._count += 1

    def __delitem__(self, place: int) -> None:
        _, tenant = self._heads.pop(place)
        line = self._lines[tenant]
        line.popleft()
        if line:
            insort(self._heads, (line[0][0], tenant))
        self._count -= 1


class ByTenant(Chunked):
    """First come, first served among the requests of a tenant; a refused one lets other tenants pass.

    Who is preempted is of the tenant that lacks room, by the rule among its sequences.
    """

    _allocator: InParts
    _waiting: Lines

    queue = Lines
    passes = True

    def _admit(self, prompts: list[tuple[Sequence, int]], budget: int, now: int) -> None:
        waiting, refused = self._waiting, 0
        while refused < waiting.places and budget > 0 and len(self._running) < self._max_seqs:
            tokens = self._try(refused, prompts, budget, now)
            refused += not tokens
            budget -= tokens
        self._blocked = 0 < refused == waiting.places

    def _latest(self) -> Sequence:
        return next(one for one in reversed(self._running.values()) if self._lacks_room(one))

    def _chosen(self) -> Sequence:
        rank = self._victim.rank
        short = (one for one in self._standings() if self._lacks_room(one.sequence))
        return max(short, key=lambda one: (rank(one), one.sequence.order)).sequence

    def _lacks_room(self, sequence: Sequence) -> bool:
        return self._allocator.part(sequence) is self._allocator.short


class ContinuousByTenant(ByTenant, Continuous):
    """The same with whole prompts."""


BY_TENANT: dict[str, type[Chunked]] = {"chunked": ByTenant, "continuous": ContinuousByTenant}
"""What becomes of a scheduler under quotas; others have no lines."""
