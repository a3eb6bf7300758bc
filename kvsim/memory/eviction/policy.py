"""The seams of eviction: one method for a policy that ranks, five for one with queues of its own."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Protocol, runtime_checkable

from kvsim.errors import ConfigError
from kvsim.memory.eviction.entry import Entry, Rank


@runtime_checkable
class EvictionPolicy(Protocol):
    """Ranks the entries of one cache; what it depends on changes only when the entry is used."""

    def priority(self, entry: Entry) -> Rank:
        """The entry with the lowest priority leaves first; of equal ones the longest unused."""
        ...


@runtime_checkable
class EvictionQueue(Protocol):
    """Keeps the order in which the entries of one cache leave.

    A cache tells it of every entry and every use. *Offered* are the entries that nobody needs now
    and whose loss costs no other entry: in a prefix cache the unlocked leaves.
    """

    def insert(self, entry: Entry) -> None:
        """The entry is new in the cache."""
        ...

    def hit(self, entry: Entry) -> None:
        """The entry has been used again."""
        ...

    def offer(self, entry: Entry) -> None:
        """The entry may leave from now on."""
        ...

    def withdraw(self, entry: Entry) -> None:
        """The entry may not leave any more, if it was offered."""
        ...

    def victim(self) -> Entry | None:
        """The entry that leaves now, taken out; None if none is offered."""
        ...

    def __contains__(self, entry: object) -> bool:
        """Whether the entry is offered."""
        ...


@runtime_checkable
class Expiring(Protocol):
    """A queue whose entries also leave because of their age."""

    def expired(self, now: int) -> Entry | None:
        """An offered entry that is too old at ``now`` (picoseconds), taken out; None if none is."""
        ...

    def outlived(self, entry: Entry, now: int) -> bool:
        """Whether an entry that nobody holds is too old at ``now``."""
        ...


MakePolicy = Callable[[int], EvictionPolicy | EvictionQueue]
"""A policy for a cache of so many tokens."""


class ByPriority:
    """The queue of a policy that ranks: a heap in which items that are not valid stay until found.

    ``entry.count`` is the number of its valid item, 0 while it is not offered.
    """

    def __init__(self, policy: EvictionPolicy) -> None:
        self._priority = policy.priority
        self._heap: list[tuple[Rank, int, int, Entry]] = []
        self._items = self._offered = 0

    def insert(self, entry: Entry) -> None:
        """It is ranked when it is offered."""

    def hit(self, entry: Entry) -> None:
        """What is offered takes its new place."""
        if entry.count:
            self.offer(entry)

    def offer(self, entry: Entry) -> None:
        """Put it where its priority and then its latest use belong."""
        if not entry.count:
            self._offered += 1
        heap = self._heap
        entry.count = self._items = item = self._items + 1
        heappush(heap, (self._priority(entry), entry.last_access, item, entry))
        if len(heap) > 2 * self._offered + 64:
            heap[:] = [old for old in heap if old[3].count == old[2]]
            heapify(heap)

    def withdraw(self, entry: Entry) -> None:
        """Its item is not valid any more."""
        if entry.count:
            entry.count = 0
            self._offered -= 1

    def victim(self) -> Entry | None:
        """The lowest."""
        while self._heap:
            *_, item, entry = heappop(self._heap)
            if entry.count == item:
                self.withdraw(entry)
                return entry
        return None

    def __contains__(self, entry: object) -> bool:
        """Whether it is offered."""
        return isinstance(entry, Entry) and entry.count > 0


def queue_of(policy: EvictionPolicy | EvictionQueue) -> EvictionQueue:
    """The queue that a policy keeps, or that keeps its order."""
    if isinstance(policy, EvictionQueue):
        return policy
    if isinstance(policy, EvictionPolicy):
        return ByPriority(policy)
    raise ConfigError(
        f"eviction {type(policy).__name__!r} has neither priority nor "
        "insert, hit, offer, withdraw and victim"
    )
