"""Free blocks of the paged allocator under an eviction policy of choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kvsim.core import Sequence
from kvsim.memory.eviction import Entry, EvictionPolicy, EvictionQueue, Expiring, Use, queue_of
from kvsim.memory.extents import Extent, FreeQueue

Forget = Callable[[Extent], None]


class Cached(Entry):
    """What the policy sees of an extent, its place in tokens."""

    __slots__ = ("extent",)

    def __init__(self, extent: Extent, block_size: int, use: Use) -> None:
        super().__init__(extent.start * block_size, extent.end * block_size, extent.key, use)
        self.extent = extent


class RankedQueue(FreeQueue):
    """Blocks without a hash are given up first, then cached ones in the order of a policy.

    A cached extent is offered to the policy while nobody holds it and no other follows on it, so no
    block outlives the one before it; from the extent that the policy chooses blocks go from the end.
    """

    def __init__(
        self, blocks: int, policy: EvictionPolicy | EvictionQueue, block_size: int
    ) -> None:
        self._policy = queue_of(policy)
        self._ages = self._policy if isinstance(self._policy, Expiring) else None
        self._block_size = block_size
        self._asked = Use(0, 0, 0)
        self._plain: list[Extent] = []
        self._members: dict[Extent, None] = {}
        """Cached extents that nobody holds."""
        self._begun: Extent | None = None
        """One of them that was chosen and is given up in part: the rest goes next."""
        self._entries: dict[Extent, Cached] = {}
        super().__init__(blocks)

    def __iter__(self) -> Iterator[Extent]:
        yield from reversed(self._plain)
        yield from self._members

    def use(self, extents: Iterable[Extent], sequence: Sequence) -> None:
        """A sequence is admitted and hits these extents, which it holds already."""
        order, latest, _ = self._asked
        use = self._asked = Use(order + 1, max(latest, sequence.arrival), sequence.num_tokens)
        for extent in extents:
            entry = self._entry(extent)
            entry.touch(use)
            self._policy.hit(entry)

    def _entry(self, extent: Extent) -> Cached:
        """Its entry; a new one is that of the extent that it was cut from, or new to the policy."""
        entry = self._entries.get(extent)
        if entry is None:
            entry = self._entries[extent] = Cached(extent, self._block_size, self._asked)
            rests = (self._entries.get(child) for child in extent.children.values())
            rest = next((rest for rest in rests if rest is not None), None)
            if rest is None:
                self._policy.insert(entry)
            else:
                entry.inherit(rest)
        entry.start, entry.end = (
            extent.start * self._block_size,
            extent.end * self._block_size,
        )
        return entry

    def release(self, extent: Extent) -> None:
        """Nobody holds an extent any more."""
        self._count(extent.end - extent.start, extent.cached)
        if extent.cached:
            self._members[extent] = None
            self._offer(extent)
        else:
            self._plain.append(extent)

    def _offer(self, extent: Extent) -> None:
        entry = self._entry(extent)
        if _is_last(extent) and extent is not self._begun:
            self._policy.offer(entry)

    def remove(self, extent: Extent) -> None:
        """Take an extent out: it is held again."""
        self._count(extent.start - extent.end, extent.cached)
        if extent.cached:
            del self._members[extent]
            self._policy.withdraw(self._entries[extent])
            if extent is self._begun:
                self._begun = None
        else:
            self._plain.remove(extent)

    def follow(self, tail: Extent, head: Extent) -> None:
        """``head`` was split off the front of ``tail``, on which it depends from now on."""
        entry = self._entries[tail]
        offered = entry in self._policy
        self._policy.withdraw(entry)
        self._members[head] = None
        self._entry(tail)
        self._entry(head)
        if offered:
            self._policy.offer(entry)

    def take(self, blocks: int, forget: Forget) -> int:
        """Give up ``blocks`` blocks; returns how many of them were cached."""
        self.blocks -= blocks
        blocks -= self._take_plain(blocks)
        self.cached -= blocks
        evicted = blocks
        while blocks:
            extent = self._next()
            taken = min(blocks, extent.end - extent.start)
            blocks -= taken
            if taken < extent.end - extent.start:
                extent.end -= taken
                self._begun = extent
            else:
                self._drop(extent, forget)
        return evicted

    def _take_plain(self, blocks: int) -> int:
        """Give up blocks that carry no hash, as many as there are."""
        wanted = blocks
        while wanted and self._plain:
            extent = self._plain[-1]
            taken = min(wanted, extent.end - extent.start)
            extent.end -= taken
            wanted -= taken
            if extent.end == extent.start:
                self._plain.pop()
        return blocks - wanted

    def _next(self) -> Extent:
        """The extent to give up blocks of: the one that was begun, unless others depend on it now."""
        begun, self._begun = self._begun, None
        return begun if begun is not None and _is_last(begun) else self._victim()

    def _victim(self) -> Extent:
        """The extent that the policy gives up, of those on which no other depends by now."""
        while (entry := self._policy.victim()) is not None:
            assert isinstance(entry, Cached)
            if _is_last(entry.extent):
                return entry.extent
        for extent in self._members:  # copies have made more of them expendable
            self._offer(extent)
        entry = self._policy.victim()
        assert isinstance(entry, Cached)
        return entry.extent

    def _drop(self, extent: Extent, forget: Forget) -> None:
        """An extent is gone; the one before it may go next."""
        del self._members[extent], self._entries[extent]
        parent = extent.parent
        if extent.content is not None:
            forget(extent)
        if parent in self._members:
            self._offer(parent)

    def fresh(self, path: list[Extent], blocks: int, arrival: int) -> tuple[list[Extent], int]:
        """What of a hit of ``blocks`` blocks is not too old at ``arrival``; changes nothing else."""
        ages = self._ages
        while ages is not None and path and not path[-1].refs:
            entry = self._entries.get(path[-1])
            if entry is None or not ages.outlived(entry, arrival):
                break
            blocks = path.pop().start
        return path, blocks

    def expire(self, forget: Forget) -> None:
        """Free the blocks that are too old: they carry no hash any more."""
        ages = self._ages
        while ages is not None and (entry := ages.expired(self._asked.arrival)) is not None:
            assert isinstance(entry, Cached)
            extent = entry.extent
            if not _is_last(extent):
                continue
            blocks = extent.end - extent.start
            self._drop(extent, forget)
            self._count(-blocks, True)
            self.release(Extent(0, blocks, cached=False))


def _is_last(extent: Extent) -> bool:
    """Whether it may go without another losing its prefix: nothing follows, or a copy takes over."""
    return not extent.children or bool(extent.copies) or extent.original is not None
