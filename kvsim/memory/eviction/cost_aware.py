"""Cost-aware: greedy-dual by recompute cost per byte."""

from __future__ import annotations

from math import inf

from kvsim.memory.eviction.accepted import between
from kvsim.memory.eviction.entry import Entry
from kvsim.memory.eviction.queues import Queued, Ranks
from kvsim.memory.eviction.recompute import BALANCE, cost_per_token


class CostAware(Queued):
    """The entry that is the cheapest to compute again, per byte, leaves first; age makes all cheaper.

    An entry is worth its cost per byte above what the last victim was worth. A token's KV takes the
    same bytes wherever it stands, and its attention costs more the later it stands. ``balance``:
    context at which attention costs as much as all else, tokens.
    Source: Young, The k-server dual and loose competitiveness for paging (Algorithmica 1994); Cao
    and Irani, Cost-aware WWW proxy caching algorithms (USITS 1997), GreedyDual-Size.
    """

    def __init__(self, *, balance: int = BALANCE) -> None:
        between(1, inf, balance=balance)
        self._balance = balance
        self._worth = Ranks()
        self._floor = 0.0
        """What the last victim was worth."""

    def insert(self, entry: Entry) -> None:
        """It is worth its cost."""
        entry.queue = self._worth
        self._rate(entry)

    def _rate(self, entry: Entry) -> None:
        entry.rank = (self._floor + self._value(entry), entry.last_access)

    def _value(self, entry: Entry) -> float:
        return cost_per_token(entry, self._balance)

    def hit(self, entry: Entry) -> None:
        """It is worth its cost again."""
        self._rate(entry)
        if entry in self._worth:
            self.offer(entry)

    def victim(self) -> Entry | None:
        """The one of least worth."""
        entry = self._worth.pop()
        if entry is not None:
            assert isinstance(entry.rank, tuple)
            self._floor = max(self._floor, entry.rank[0])
        return entry
