"""Schedulers under quotas: a tenant at its bound keeps nobody else waiting."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
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


class Lines(deque[Sequence]):
    """The queue, which knows how many of each tenant wait."""

    def __init__(self, waiting: Iterable[Sequence] = ()) -> None:
        super().__init__(waiting)
        self.waiting = Counter(sequence.request.tenant for sequence in self)

    def append(self, sequence: Sequence) -> None:
        """A request has arrived."""
        super().append(sequence)
        self.waiting[sequence.request.tenant] += 1

    def appendleft(self, sequence: Sequence) -> None:
        """A request was preempted."""
        super().appendleft(sequence)
        self.waiting[sequence.request.tenant] += 1

    def __delitem__(self, place: int) -> None:  # type: ignore[override]
        tenant = self[place].request.tenant
        super().__delitem__(place)
        self.waiting[tenant] -= 1
        if not self.waiting[tenant]:
            del self.waiting[tenant]


class ByTenant(Chunked):
    """First come, first served among the requests of a tenant; a refused one lets other tenants pass.

    Who is preempted is of the tenant that lacks room, by the rule among its sequences.
    """

    _allocator: InParts
    _waiting: Lines

    queue = Lines
    passes = True

    def _admit(self, prompts: list[tuple[Sequence, int]], budget: int, now: int) -> None:
        waiting, running, refused = self._waiting, self._running, set[str | None]()
        place = 0
        while budget > 0 and len(running) < self._max_seqs and len(refused) < len(waiting.waiting):
            tenant = waiting[place].request.tenant
            tokens = 0 if tenant in refused else self._try(place, prompts, budget, now)
            if not tokens:
                refused.add(tenant)
                place += 1
            budget -= tokens
        self._blocked = bool(refused) and len(refused) == len(waiting.waiting)

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
