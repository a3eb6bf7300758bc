"""Least recently used."""

from __future__ import annotations

from kvsim.memory.eviction.entry import Entry


class LRU:
    """The entry that was used longest ago leaves first.

    Source: Mattson et al., Evaluation techniques for storage hierarchies (IBM Systems Journal 1970).
    """

    def priority(self, entry: Entry) -> int:
        """Rank by the latest use."""
        return entry.last_access
