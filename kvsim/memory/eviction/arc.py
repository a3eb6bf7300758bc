"""ARC: a balance of recency and frequency that learns."""

from __future__ import annotations

from collections import OrderedDict

from kvsim.memory.eviction.entry import Entry
from kvsim.memory.eviction.queues import Ghosts, Queued, Ranks
from kvsim.memory.eviction.scanning import Blocks


class ARC(Queued):
    """One LRU list for entries seen once of late, one for those seen again, and the names of what left.

    A return of what left a list makes that list's share of the cache larger.
    Source: Megiddo and Modha, ARC: a self-tuning, low overhead replacement cache (FAST 2003). A
    cache that makes room before it says for what learns one eviction later than the paper's.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._once, self._again = Ranks(), Ranks()
        self._left_once, self._left_again = Ghosts(), Ghosts()
        self._share = 0.0
        """Tokens that the list of entries seen once should have."""

    def insert(self, entry: Entry) -> None:
        """It is seen once, or again if it is remembered: then its list grows."""
        once, again = max(1, self._left_once.size), max(1, self._left_again.size)
        entry.rank = entry.inserted
        entry.queue = self._again
        if self._left_once.recall(entry):
            self._share = min(self._capacity, self._share + entry.size * max(1, again / once))
        elif self._left_again.recall(entry):
            self._share = max(0, self._share - entry.size * max(1, once / again))
        else:
            entry.queue = self._once

    def hit(self, entry: Entry) -> None:
        """It is seen again, and the most recent."""
        offered = entry in entry.queue
        entry.queue.discard(entry)
        entry.queue, entry.rank = self._again, entry.last_access
        if offered:
            self.offer(entry)

    def victim(self) -> Entry | None:
        """The least recent of the list that has more than its share."""
        once = self._once
        if once and (once.size > self._share or not self._again):
            return self._gone(once.pop(), self._left_once, self._capacity - once.size)
        return self._gone(self._again.pop(), self._left_again, self._capacity)

    def _gone(self, entry: Entry | None, ghosts: Ghosts, limit: int) -> Entry | None:
        if entry is not None:
            ghosts.remember(entry, max(0, limit))
        return entry

    def scan(self, trace: Blocks, capacity: int) -> bytearray:
        """Hits of blocks that are accessed one by one, exactly as in the paper's figure 4."""
        lists = _Lists(trace.distinct, capacity)
        where, once, again, left_once = lists.where, lists.once, lists.again, lists.left_once
        renew, leave, forget = again.move_to_end, once.popitem, left_once.popitem
        hits, free, steady = bytearray(len(trace.accesses)), capacity, False
        for at, block in enumerate(trace.accesses):
            place = where[block]
            if place == AGAIN:
                hits[at] = 1
                renew(block)
            elif place == ONCE:
                hits[at] = 1
                del once[block]
                again[block] = None
                where[block] = AGAIN
                steady = False
            elif place or not (free or steady):
                lists.miss(block, place)
                steady = lists.steady
            else:
                if free:
                    free -= 1
                else:  # the common miss
                    where[forget(False)[0]] = 0
                    old = leave(False)[0]
                    left_once[old] = None
                    where[old] = LEFT_ONCE
                once[block] = None
                where[block] = ONCE
        return hits


ONCE, AGAIN, LEFT_ONCE, LEFT_AGAIN = 1, 2, 3, 4


class _Lists:
    """The four lists of the paper (T1, T2, B1, B2), each from the least to the most recent."""

    __slots__ = ("again", "capacity", "left_again", "left_once", "once", "share", "where")

    def __init__(self, distinct: int, capacity: int) -> None:
        self.capacity = capacity
        self.where = bytearray(distinct)
        """The list that each block is in; 0 if in none."""
        self.once: OrderedDict[int, None] = OrderedDict()
        self.again: OrderedDict[int, None] = OrderedDict()
        self.left_once: OrderedDict[int, None] = OrderedDict()
        self.left_again: OrderedDict[int, None] = OrderedDict()
        self.share = 0.0

    @property
    def steady(self) -> bool:
        """Whether a new block lets another go from the list of those seen once, all sizes as before."""
        once, left_once = len(self.once), len(self.left_once)
        return left_once > 0 and once > self.share and once + left_once == self.capacity

    def miss(self, block: int, place: int) -> None:
        """The block is remembered in one of the lists (cases II and III), or in none (IV)."""
        where, once = self.where, self.once
        if place:
            self._return(block, place)
            self.again[block] = None
            where[block] = AGAIN
            return
        capacity, left_once, left_again = self.capacity, self.left_once, self.left_again
        seen_once = len(once) + len(left_once)
        if seen_once == capacity:
            if left_once:
                where[left_once.popitem(last=False)[0]] = 0
                self._replace(False)
            else:
                where[once.popitem(last=False)[0]] = 0
        else:
            total = seen_once + len(self.again) + len(left_again)
            if total == 2 * capacity:
                where[left_again.popitem(last=False)[0]] = 0
            if total >= capacity:
                self._replace(False)
        once[block] = None
        where[block] = ONCE

    def _return(self, block: int, place: int) -> None:
        """A remembered block comes back: adapt the share and make room."""
        left_once, left_again = self.left_once, self.left_again
        if place == LEFT_ONCE:
            self.share = min(self.capacity, self.share + max(1, len(left_again) / len(left_once)))
            self._replace(False)
            del left_once[block]
        else:
            self.share = max(0, self.share - max(1, len(left_once) / len(left_again)))
            self._replace(True)
            del left_again[block]

    def _replace(self, seen_again: bool) -> None:
        """Drop the least recent of one list; ``seen_again``: for a block that had left the second."""
        once = self.once
        if once and (len(once) > self.share or (seen_again and len(once) == self.share)):
            block, _ = once.popitem(last=False)
            self.left_once[block] = None
            self.where[block] = LEFT_ONCE
        else:
            block, _ = self.again.popitem(last=False)
            self.left_again[block] = None
            self.where[block] = LEFT_AGAIN
