"""What an eviction policy sees: the cached entries, and how they are used."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kvsim.memory.eviction.queues import Ranks

Rank = float | tuple[float, ...]
"""What entries are ordered by; of one policy all ranks have one shape."""


class Use(NamedTuple):
    """One use of the cache by a request."""

    order: int
    """Rank among all uses of the cache: larger is later."""
    arrival: int
    """When the request arrived, picoseconds."""
    prompt: int
    """Its known tokens."""


class Entry:
    """A run of cached tokens, ``start`` to ``end`` counted from the start of the prompt."""

    __slots__ = (
        "arrival",
        "count",
        "end",
        "hits",
        "inserted",
        "interval",
        "key",
        "last_access",
        "prompt",
        "queue",
        "rank",
        "start",
    )

    def __init__(self, start: int, end: int, key: Hashable, use: Use) -> None:
        self.start = start
        self.end = end
        self.key = key
        """Name of its first block or page among those that follow the same tokens."""
        self.inserted = self.last_access = use.order
        self.hits = 0
        """Uses since it was cached."""
        self.arrival = use.arrival
        """When the request arrived that used it last, picoseconds."""
        self.interval = 0
        """Between the arrivals of the latest two requests that used it, picoseconds."""
        self.prompt = use.prompt
        """Known tokens of the request that used it last."""
        self.count = 0
        """What its policy counts."""
        self.rank: Rank = 0
        """Its place in its queue."""
        self.queue: Ranks
        """The queue of its policy that it belongs to."""

    @property
    def size(self) -> int:
        """Tokens."""
        return self.end - self.start

    def touch(self, use: Use) -> None:
        """It is used once more."""
        self.hits += 1
        self.last_access = use.order
        self.interval = use.arrival - self.arrival
        self.arrival = use.arrival
        self.prompt = use.prompt

    def inherit(self, other: Entry) -> None:
        """It was a part of ``other``, and has been used as that was."""
        self.inserted, self.last_access, self.hits = other.inserted, other.last_access, other.hits
        self.arrival, self.interval, self.prompt = other.arrival, other.interval, other.prompt
        self.count, self.rank = other.count, other.rank
        if hasattr(other, "queue"):
            self.queue = other.queue
