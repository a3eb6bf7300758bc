"""Which cached entry is given up first: the seam and its policies.

A cache asks for the priority of an entry each time that the entry is used, and gives up the entry
with the lowest one first; equal priorities, the longest unused first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Entry(Protocol):
    """What a policy may know about a cached entry."""

    @property
    def last_access(self) -> int:
        """Rank of its latest use among all uses of the cache: larger is later."""
        ...


class EvictionPolicy(Protocol):
    """Ranks the entries of one cache. Must depend on nothing but the entry."""

    def priority(self, entry: Entry) -> float:
        """The entry with the lowest priority leaves first."""
        ...


class LRU:
    """Least recently used first."""

    def priority(self, entry: Entry) -> int:
        """Rank by the latest use."""
        return entry.last_access


EVICTIONS: dict[str, Callable[[], EvictionPolicy]] = {"lru": LRU}
