"""TTL: what was not used for a while is gone."""

from __future__ import annotations

from kvsim.core import picoseconds
from kvsim.memory.eviction.accepted import positive
from kvsim.memory.eviction.entry import Entry
from kvsim.memory.eviction.queues import Queued, Ranks


class TTL(Queued):
    """Entries leave ``ttl`` seconds after their latest use, room or no room; before that, LRU.

    Ages are measured between the arrivals of requests. Source: the prompt caches of hosted models,
    which keep a prefix for some minutes after its last use (Anthropic, Prompt caching: 5 minutes).
    """

    def __init__(self, *, ttl: float = 300.0) -> None:
        positive(ttl=ttl)
        self._ttl = picoseconds(ttl)
        self._entries = Ranks()

    def insert(self, entry: Entry) -> None:
        """Its time begins."""
        entry.queue, entry.rank = self._entries, entry.inserted

    def hit(self, entry: Entry) -> None:
        """Its time begins anew."""
        entry.rank = entry.last_access
        if entry in self._entries:
            self.offer(entry)

    def victim(self) -> Entry | None:
        """The least recent."""
        return self._entries.pop()

    def expired(self, now: int) -> Entry | None:
        """The least recent, if its time is over."""
        oldest = self._entries.peek()
        return self._entries.pop() if oldest and self.outlived(oldest, now) else None

    def outlived(self, entry: Entry, now: int) -> bool:
        """Whether its time is over."""
        return now - entry.arrival > self._ttl
