"""GDSF: greedy-dual by cost, size and frequency."""

from __future__ import annotations

from kvsim.memory.eviction.cost_aware import CostAware
from kvsim.memory.eviction.entry import Entry
from kvsim.memory.eviction.recompute import cost_per_token


class GDSF(CostAware):
    """As :class:`CostAware`, each use making an entry worth its cost once more.

    Source: Cherkasova, Improving WWW proxies performance with greedy-dual-size-frequency caching
    policy (HP Labs 1998).
    """

    def _value(self, entry: Entry) -> float:
        return (entry.hits + 1) * cost_per_token(entry, self._balance)
