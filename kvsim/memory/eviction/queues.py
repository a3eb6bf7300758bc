"""What queues of entries are made of: entries by rank, and the names of those that have left."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from heapq import heapify, heappop, heappush

from kvsim.memory.eviction.entry import Entry, Rank


class Ranks:
    """Entries by rank, the lowest first; equal ranks by ``tie``, then as they came."""

    __slots__ = ("_heap", "_tickets", "_valid", "size")

    def __init__(self) -> None:
        self.size = 0
        """Tokens of all entries, as they were when they came."""
        self._tickets = 0
        self._valid: dict[Entry, tuple[int, int]] = {}
        """The one valid item of each entry, by its ticket, and the entry's size."""
        self._heap: list[tuple[Rank, float, int, Entry]] = []

    def __len__(self) -> int:
        return len(self._valid)

    def __contains__(self, entry: object) -> bool:
        return entry in self._valid

    def push(self, entry: Entry, rank: Rank, tie: float = 0) -> None:
        """Put an entry in, or where it now belongs."""
        valid, heap = self._valid, self._heap
        if entry in valid:
            self.discard(entry)
        self._tickets = ticket = self._tickets + 1
        size = entry.end - entry.start
        valid[entry] = (ticket, size)
        self.size += size
        heappush(heap, (rank, tie, ticket, entry))
        if len(heap) > 2 * len(valid) + 64:
            self._heap = [item for item in heap if self._is_valid(item)]
            heapify(self._heap)

    def discard(self, entry: Entry) -> None:
        """Take an entry out, if it is in."""
        valid = self._valid.pop(entry, None)
        if valid is not None:
            self.size -= valid[1]

    def pop(self) -> Entry | None:
        """Take the lowest entry out; None if there is none."""
        entry = self.peek()
        if entry is not None:
            heappop(self._heap)
            self.discard(entry)
        return entry

    def peek(self) -> Entry | None:
        """The lowest entry, which stays; None if there is none."""
        heap = self._heap
        while heap:
            if self._is_valid(heap[0]):
                return heap[0][3]
            heappop(heap)
        return None

    def _is_valid(self, item: tuple[Rank, float, int, Entry]) -> bool:
        valid = self._valid.get(item[3])
        return valid is not None and valid[0] == item[2]


class Queued:
    """What all queues of entries do alike: an entry stands in ``entry.queue`` at ``entry.rank``."""

    def offer(self, entry: Entry) -> None:
        """Put it where it belongs."""
        entry.queue.push(entry, entry.rank)

    def withdraw(self, entry: Entry) -> None:
        """Take it out of its queue."""
        entry.queue.discard(entry)

    def __contains__(self, entry: object) -> bool:
        """Whether it is in its queue."""
        return isinstance(entry, Entry) and entry in entry.queue


class Ghosts:
    """Names of entries that have left, the earliest forgotten first beyond a number of tokens."""

    def __init__(self) -> None:
        self.size = 0
        """Tokens of the entries that are remembered."""
        self._sizes: OrderedDict[Hashable, int] = OrderedDict()

    def remember(self, entry: Entry, limit: int) -> None:
        """Note that the entry has left; forget the earliest until ``limit`` tokens are left."""
        self.recall(entry)
        self._sizes[entry.start, entry.key] = entry.size
        self.size += entry.size
        self.trim(limit)

    def trim(self, limit: int) -> None:
        """Forget the earliest until ``limit`` tokens are left."""
        while self.size > limit and self._sizes:
            _, size = self._sizes.popitem(last=False)
            self.size -= size

    def recall(self, entry: Entry) -> bool:
        """Whether an entry that begins like this one has left and is remembered; no longer is."""
        size = self._sizes.pop((entry.start, entry.key), None)
        self.size -= size or 0
        return size is not None
