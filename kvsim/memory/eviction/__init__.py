"""Which cached entry is given up first: the seams, and the policies, each in a file of its own."""

from __future__ import annotations

from kvsim.memory.eviction.entry import Entry, Rank, Use
from kvsim.memory.eviction.lru import LRU
from kvsim.memory.eviction.policy import (
    EvictionPolicy,
    EvictionQueue,
    Expiring,
    MakePolicy,
    queue_of,
)

__all__ = [
    "LRU",
    "Entry",
    "EvictionPolicy",
    "EvictionQueue",
    "Expiring",
    "MakePolicy",
    "Rank",
    "Use",
    "queue_of",
]
