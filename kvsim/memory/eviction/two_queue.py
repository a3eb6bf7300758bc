"""2Q: what comes once goes soon."""

from __future__ import annotations

from kvsim.memory.eviction.accepted import between
from kvsim.memory.eviction.entry import Entry
from kvsim.memory.eviction.queues import Ghosts, Queued, Ranks


class TwoQueue(Queued):
    """New entries pass through a queue; only those that come again after it enter an LRU list.

    ``recent``: share of the cache for the queue; ``remembered``: share of it that names of entries
    which have left the queue stand for. Source: Johnson and Shasha, 2Q: a low overhead high
    performance buffer management replacement algorithm (VLDB 1994), the full version.
    """

    def __init__(self, capacity: int, *, recent: float = 0.25, remembered: float = 0.5) -> None:
        between(0, 1, recent=recent, remembered=remembered)
        self._limit = int(recent * capacity)
        self._memory = int(remembered * capacity)
        self._recent, self._main, self._left = Ranks(), Ranks(), Ghosts()

    def insert(self, entry: Entry) -> None:
        """It goes into the queue, or into the list if it was there before."""
        entry.queue = self._main if self._left.recall(entry) else self._recent
        entry.rank = entry.inserted

    def hit(self, entry: Entry) -> None:
        """In the list it becomes the most recent; in the queue nothing changes."""
        if entry.queue is self._main:
            entry.rank = entry.last_access
            if entry in self._main:
                self.offer(entry)

    def victim(self) -> Entry | None:
        """The first of the queue while it is too long, else the least recent of the list."""
        if self._recent.size > self._limit or not len(self._main):
            entry = self._recent.pop()
            if entry is not None:
                self._left.remember(entry, self._memory)
            return entry
        return self._main.pop()
