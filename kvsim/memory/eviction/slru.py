"""Segmented LRU."""

from __future__ import annotations

from kvsim.memory.eviction.accepted import between
from kvsim.memory.eviction.entry import Entry
from kvsim.memory.eviction.queues import Queued, Ranks


class SLRU(Queued):
    """Entries that were used again are protected, up to a ``protected`` share of the cache.

    New entries are on probation and leave first, the least recent foremost. Whoever is used there
    becomes protected; what is protected beyond the share goes back on probation.
    Source: Karedla, Love and Wherry, Caching strategies to improve disk system performance (IEEE
    Computer 1994). SGLang 0.5.23's ``slru`` is the same without a bound (``protected=1``).
    """

    def __init__(self, capacity: int, *, protected: float = 0.8) -> None:
        between(0, 1, protected=protected)
        self._limit = int(protected * capacity)
        self._probation, self._protected = Ranks(), Ranks()
        self._clock = 0

    def insert(self, entry: Entry) -> None:
        """It is on probation."""
        entry.queue = self._probation
        self._stamp(entry)

    def _stamp(self, entry: Entry) -> None:
        self._clock += 1
        entry.rank = self._clock

    def hit(self, entry: Entry) -> None:
        """It is protected from now on."""
        offered = entry in entry.queue
        entry.queue.discard(entry)
        entry.queue = self._protected
        self._stamp(entry)
        if offered:
            self.offer(entry)

    def offer(self, entry: Entry) -> None:
        """Put it into its segment; the protected one gives up what is too much."""
        super().offer(entry)
        while self._protected.size > self._limit:
            least = self._protected.pop()
            assert least is not None
            least.queue = self._probation
            self._stamp(least)
            self._probation.push(least, least.rank)

    def victim(self) -> Entry | None:
        """The least recent on probation, else the least recent at all."""
        return self._probation.pop() or self._protected.pop()
