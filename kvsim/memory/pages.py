"""Pages of equal size that groups of layers take from one pool, and what each is known by."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b

from kvsim.memory.extents import Content

Key = tuple[int, bytes]
"""Group of layers, and hash of a block and all that precedes it."""


class Chain:
    """The chained hashes of a sequence's blocks of ``size`` tokens, as far as they were asked for."""

    __slots__ = ("_content", "_hashes", "_owner")

    def __init__(self, content: Content, owner: int, known: list[bytes] | None = None) -> None:
        self._content = content
        self._owner = owner.to_bytes(8, "little")
        self._hashes = known or []

    @property
    def shared(self) -> int:
        """Blocks whose content the trace describes; those after them are the sequence's alone."""
        return self._content.shared

    def fork(self, owner: int, blocks: int) -> Chain:
        """The chain of a sequence that goes its own way after ``blocks`` blocks."""
        if blocks:
            self.hash(blocks - 1)
        return Chain(self._content, owner, self._hashes[:blocks])

    def hash(self, block: int) -> bytes:
        """What names the block."""
        hashes = self._hashes
        while len(hashes) <= block:
            before = hashes[-1] if hashes else b""
            hashes.append(blake2b(before + self._own(len(hashes)), digest_size=16).digest())
        return hashes[block]

    def _own(self, block: int) -> bytes:
        content = self._content
        if block >= content.shared:
            return b"own" + self._owner
        first = block * content.size // content.width
        last = -(-(block + 1) * content.size // content.width)
        return content.ids[first:last].tobytes()


class PagePool:
    """Pages 1 to ``num_pages`` - 1; what nobody holds waits in the order in which it was given back.

    A page that is known by a key can be hit until it is taken for something else. Equal pages are not
    merged: of several with one key the first is hit. Page 0 is never used (the null block).
    """

    def __init__(self, num_pages: int, groups: int, slots: int) -> None:
        self.num_pages = num_pages
        self.evictions = 0
        self.saved_slots = 0
        self.held = [0] * groups
        """Pages that running sequences hold, by group; a shared one counts once."""
        self.peak = [0] * groups
        self._slots = slots
        self._fresh = 1  # pages from here on were never used
        self._queue: OrderedDict[int, None] = OrderedDict()
        self._refs: dict[int, int] = {}
        self._keys: dict[int, Key] = {}
        self._known: dict[Key, dict[int, None]] = {}
        self._cached = 0  # pages in the queue that have a key

    @property
    def total_slots(self) -> int:
        """Slots of all pages but the null block."""
        return (self.num_pages - 1) * self._slots

    @property
    def held_slots(self) -> int:
        """Slots of the pages that running sequences hold; a shared page counts once."""
        return sum(self.held) * self._slots

    @property
    def _free(self) -> int:
        return self.num_pages - self._fresh + len(self._queue)

    def _take(self, group: int) -> int:
        """A page that nobody holds; what it kept is gone."""
        if self._fresh < self.num_pages:
            page, self._fresh = self._fresh, self._fresh + 1
        else:
            page, _ = self._queue.popitem(last=False)
            self._forget(page)
        self._refs[page] = 1
        self._hold(group)
        return page

    def _hold(self, group: int) -> None:
        self.held[group] += 1
        if self.held[group] > self.peak[group]:
            self.peak[group] = self.held[group]

    def _forget(self, page: int) -> None:
        key = self._keys.pop(page, None)
        if key is None:
            return
        self._cached -= 1
        self.evictions += 1
        same = self._known[key]
        del same[page]
        if not same:
            del self._known[key]

    def _share(self, page: int, group: int) -> None:
        """One more sequence holds a page."""
        refs = self._refs.get(page, 0)
        self._refs[page] = refs + 1
        if refs:
            self.saved_slots += self._slots
        else:
            del self._queue[page]
            self._cached -= page in self._keys
            self._hold(group)

    def _release(self, page: int, group: int) -> None:
        """One sequence less holds a page; nobody's page goes to the end of the queue."""
        if self._refs[page] > 1:
            self._refs[page] -= 1
            self.saved_slots -= self._slots
            return
        del self._refs[page]
        self._queue[page] = None
        self._cached += page in self._keys
        self.held[group] -= 1

    def _name(self, page: int, key: Key) -> None:
        """Let others hit a page that somebody holds."""
        if page not in self._keys:
            self._keys[page] = key
            self._known.setdefault(key, {})[page] = None

    def _find(self, key: Key) -> int | None:
        return next(iter(self._known.get(key, ())), None)
