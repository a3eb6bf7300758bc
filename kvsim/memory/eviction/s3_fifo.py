"""S3-FIFO: three queues, no order by use."""

from __future__ import annotations

from collections import OrderedDict

from kvsim.memory.eviction.accepted import between
from kvsim.memory.eviction.entry import Entry
from kvsim.memory.eviction.queues import Ghosts, Queued, Ranks
from kvsim.memory.eviction.scanning import Blocks

MOST = 3
"""Uses that are counted."""


class S3FIFO(Queued):
    """New entries pass through a small queue; what is used ``promote`` times there moves to the main one.

    The main queue gives a used entry another round, one use less. What leaves the small queue is
    remembered, and comes into the main queue when it returns. ``small``: share of the cache for the
    small queue. Source: Yang et al., FIFO queues are all you need for cache eviction (SOSP 2023).
    """

    def __init__(self, capacity: int, *, small: float = 0.1, promote: int = 2) -> None:
        between(0, 1, small=small)
        between(1, MOST, promote=promote)
        self._share, self._promote = small, promote
        self._main_limit = capacity - int(small * capacity)
        self._small, self._main, self._ghosts = Ranks(), Ranks(), Ghosts()
        self._clock = 0

    def insert(self, entry: Entry) -> None:
        """It goes into the small queue, or into the main one if it has left the small one of late."""
        entry.count = 0
        self._append(entry, self._main if self._ghosts.recall(entry) else self._small)

    def _append(self, entry: Entry, queue: Ranks) -> None:
        self._clock += 1
        entry.queue, entry.rank = queue, self._clock

    def hit(self, entry: Entry) -> None:
        """Count the use."""
        entry.count = min(MOST, entry.count + 1)

    def victim(self) -> Entry | None:
        """The first that is used too little, of the main queue while that is too long."""
        while self._small or self._main:
            if self._main.size > self._main_limit or not self._small:
                entry = self._next_of_main()
            else:
                entry = self._next_of_small()
            if entry is not None:
                return entry
        return None

    def _next_of_main(self) -> Entry | None:
        entry = self._main.pop()
        if entry is None or not entry.count:
            return entry
        entry.count -= 1
        self._append(entry, self._main)
        self.offer(entry)
        return None

    def _next_of_small(self) -> Entry | None:
        entry = self._small.pop()
        assert entry is not None
        if entry.count < self._promote:
            self._ghosts.remember(entry, self._main_limit)
            return entry
        entry.count = 0
        self._append(entry, self._main)
        self.offer(entry)
        return None

    def scan(self, trace: Blocks, capacity: int) -> bytearray:
        """Hits of blocks that are accessed one by one: what the queue gives, faster."""
        hits = bytearray(len(trace.accesses))
        uses = bytearray(trace.distinct)  # 0: not cached, else uses + 1
        limit, promote = capacity - int(self._share * capacity), self._promote + 1
        ghosts: OrderedDict[int, None] = OrderedDict()
        small: list[int] = []
        main: list[int] = []
        first_small = first_main = num_main = 0  # of small there are capacity - num_main when full
        free = capacity
        for at, block in enumerate(trace.accesses):
            count = uses[block]
            if count:
                hits[at] = 1
                if count <= MOST:
                    uses[block] = count + 1
                continue
            while not free:
                if num_main > limit or num_main == capacity:
                    old = main[first_main]
                    first_main += 1
                    count = uses[old] = uses[old] - 1
                    if count:
                        main.append(old)
                    else:
                        num_main -= 1
                        free = 1
                    continue
                old = small[first_small]
                first_small += 1
                if uses[old] >= promote:
                    uses[old] = 1
                    main.append(old)
                    num_main += 1
                else:
                    uses[old] = 0
                    free = 1
                    ghosts[old] = None
                    if len(ghosts) > limit:
                        ghosts.popitem(False)
            free -= 1
            uses[block] = 1
            if block in ghosts:
                del ghosts[block]
                main.append(block)
                num_main += 1
            else:
                small.append(block)
        return hits
