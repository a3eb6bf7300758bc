"""Workload-aware: by how likely a kind of entry is used again soon."""

from __future__ import annotations

import math

from kvsim.core import PICOSECONDS, picoseconds
from kvsim.memory.eviction.accepted import between, positive
from kvsim.memory.eviction.entry import Entry
from kvsim.memory.eviction.queues import Queued, Ranks

MOST = 1_000
"""Uses of an entry that may still be told apart: each has a category of its own."""


class Category:
    """Entries that are used alike, the longest unused first, and how they were used so far."""

    def __init__(self) -> None:
        self.entries = Ranks()
        self.seen = 0
        """Entries that have come into the category."""
        self.reused = 0
        self.waited = 0
        """Until they were used again, picoseconds, summed."""

    def reuse_probability(self, age: int, life: int) -> float:
        """Of a use within ``life`` picoseconds from now of an entry that was last used ``age`` ago.

        Times to the next use are exponential; without any seen yet they are taken to be long.
        """
        share = (self.reused + 1) / (self.seen + 2)
        mean = self.waited / self.reused if self.reused else 0
        if not mean:
            return share
        return share * (math.exp(-age / mean) - math.exp(-(age + life) / mean))


class WorkloadAware(Queued):
    """The entry that is least likely to be used within the next ``life`` seconds leaves first.

    Per category an exponential time to the next use is fitted as the requests go by; of equal
    entries the later in the prompt leaves. The study's categories are the request's type and turn;
    traces seldom name them, so here it is how often an entry has been used, up to ``most`` times:
    for the prefix of a conversation that is its turn.
    Source: Wang et al., KVCache cache in the wild (USENIX ATC 2025, arXiv:2506.02634) section 4.
    """

    def __init__(self, *, life: float = 60.0, most: int = 8) -> None:
        positive(life=life)
        between(0, MOST, most=most)
        self._life = picoseconds(life)
        self._categories = [Category() for _ in range(most + 1)]
        self._now = 0

    def insert(self, entry: Entry) -> None:
        """It has never been used again."""
        self._enter(entry, 0)

    def _enter(self, entry: Entry, number: int) -> None:
        entry.count = number
        self._now = max(self._now, entry.arrival)
        category = self._categories[number]
        category.seen += 1
        entry.queue = category.entries
        entry.rank = (entry.arrival / PICOSECONDS, -entry.start)

    def hit(self, entry: Entry) -> None:
        """Its category learns, and it goes into the next one."""
        category = self._categories[entry.count]
        category.reused += 1
        category.waited += max(0, entry.interval)
        offered = entry in entry.queue
        entry.queue.discard(entry)
        self._enter(entry, min(entry.count + 1, len(self._categories) - 1))
        if offered:
            self.offer(entry)

    def victim(self) -> Entry | None:
        """The least likely among the longest unused of each category."""
        heads = [(c, head) for c in self._categories if (head := c.entries.peek()) is not None]
        if not heads:
            return None
        category, _ = min(heads, key=lambda pair: (self._chance(*pair), -pair[1].start))
        return category.entries.pop()

    def _chance(self, category: Category, entry: Entry) -> float:
        return category.reuse_probability(self._now - entry.arrival, self._life)
