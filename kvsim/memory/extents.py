"""Runs of cached blocks: the prefix tree that finds them and the queue in which they are given up.

A prompt of Mooncake's traces is hundreds of blocks, of which a request shares most as one run. So
nothing here is kept block by block: an :class:`Extent` is a run of consecutive blocks of one
prefix, and one piece of work serves the whole run.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterator
from typing import Final

from kvsim.core import Sequence, packed

NO_CHILDREN: Final[dict[Hashable, Extent]] = {}
"""Stands for an empty dict that is never written to."""


class Content:
    """What the full blocks of one sequence hold, and how far other sequences may share them."""

    __slots__ = ("first", "ids", "lineage", "owner", "shared", "size", "width")

    def __init__(
        self, ids: array[int], width: int, shared: int, size: int, owner: object, first: int = 0
    ) -> None:
        self.ids = ids
        """Hash ids of the prompt, ``width`` tokens each, from number ``first`` on."""
        self.first = first
        self.width = width
        self.shared = shared
        """Full blocks that the ids describe; those after them are the owner's alone."""
        self.size = size
        """Tokens in a block."""
        self.owner = owner
        self.lineage: tuple[tuple[int, object], ...] = ()
        """For a fork: up to which block another sequence computed what it has, the oldest first."""

    def fork(self, owner: object, at: int) -> Content:
        """The content of a sequence that goes its own way from block ``at`` on."""
        fork = Content(self.ids, self.width, self.shared, self.size, owner)
        known = self.lineage[-1][0] if self.lineage else self.shared
        fork.lineage = self.lineage if at <= known else (*self.lineage, (at, self.owner))
        return fork

    def key(self, block: int) -> Hashable:
        """Name of a block among blocks with the same predecessor."""
        if block >= self.shared:
            return self._computed_by(block) if self.lineage else self.owner
        first = block * self.size // self.width - self.first
        last = -(-(block + 1) * self.size // self.width) - self.first
        return self.ids[first] if last == first + 1 else tuple(self.ids[first:last])

    def part(self, start: int, end: int) -> Content:
        """What is needed to recognise some blocks after their sequence has gone."""
        if start >= self.shared:
            return self
        first, last = start * self.size // self.width, -(-end * self.size // self.width)
        ids = self.ids[first - self.first : last - self.first]
        return Content(ids, self.width, end, self.size, None, first)

    def stretch(self, block: int) -> int | None:
        """Up to which block one source has it from ``block`` on; None without end."""
        if block < self.shared:
            return self.shared
        return next((end for end, _ in self.lineage if block < end), None)

    def _computed_by(self, block: int) -> object:
        return next((owner for end, owner in self.lineage if block < end), self.owner)

    def common(self, extent: Extent) -> int:
        """Block up to which the extent (whose first block is ours) agrees with this content."""
        if extent.start >= self.shared:
            ends = (end for end, _ in self.lineage if extent.start < end)
            return min(extent.end, next(ends, extent.end))
        end = min(extent.end, self.shared)
        first = extent.start * self.size // self.width
        last = -(-end * self.size // self.width)
        assert extent.content is not None
        theirs = extent.content.ids[first - extent.content.first : last - extent.content.first]
        ours = self.ids[first:last]
        if theirs == ours:
            return end
        same = next(i for i, (a, b) in enumerate(zip(theirs, ours, strict=True)) if a != b)
        return (first + same) * self.width // self.size


def content_of(sequence: Sequence, size: int) -> Content:
    """What the full blocks of ``size`` tokens of a sequence hold."""
    request = sequence.request
    ids = packed(request.hash_ids)
    described = min(request.prompt_tokens, len(ids) * request.hash_block)
    return Content(ids, request.hash_block, described // size, size, sequence)


class Extent:
    """Blocks ``start`` to ``end`` (exclusive) of a prefix, counted from the start of the prompt.

    In the tree it has the ``content`` of the sequence that it was computed for. An extent outside
    the tree is a number of blocks that nobody can hit. It is in the free queue exactly while no
    running sequence holds it (``refs == 0``).

    Engines do not merge equal blocks that were computed twice. A second copy of a block waits, as an
    extent of that one block, in ``copies`` of the first and takes its place when it is evicted.
    """

    __slots__ = (
        "cached",
        "children",
        "content",
        "copies",
        "end",
        "heir",
        "key",
        "next",
        "original",
        "parent",
        "prev",
        "refs",
        "start",
    )

    def __init__(self, start: int, end: int, *, cached: bool, refs: int = 0) -> None:
        self.start = start
        self.end = end
        self.refs = refs
        self.cached = cached
        """Whether its blocks carry a hash: giving them up is an eviction."""
        self.content: Content | None = None
        self.key: Hashable = None
        self.parent: Extent | None = None
        self.children = NO_CHILDREN
        self.copies: list[Extent] | None = None
        self.original: Extent | None = None
        """For a copy: the extent in the tree that has the same content."""
        self.heir: Extent | None = None
        """For an evicted original: the copy that took its place in the tree."""
        self.prev: Extent
        self.next: Extent

    def adopt(self, child: Extent, key: Hashable) -> None:
        """Hang ``child`` under this extent; its first block is ``key``."""
        if self.children is NO_CHILDREN:
            self.children = {}
        self.children[key] = child
        child.parent = self
        child.key = key


class FreeQueue:
    """Free blocks in the order in which they are given up, as vLLM 0.23 keeps them.

    Least recently released first. A released sequence appends its blocks in reverse, hashed or not,
    so that the tail of a prefix is given up before its head; within an extent that is from ``end``
    down. Source: vLLM 0.23.0 ``v1/core/kv_cache_utils.py`` and ``block_pool.py``.
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = 0
        """Free blocks, cached or not."""
        self.cached = 0
        """Those that carry a hash."""
        self._ends = ends = Extent(0, 0, cached=False)
        ends.prev = ends.next = ends
        self.release(Extent(0, blocks, cached=False))

    def __iter__(self) -> Iterator[Extent]:
        extent = self._ends.next
        while extent is not self._ends:
            yield extent
            extent = extent.next

    def release(self, extent: Extent) -> None:
        """Append an extent that nobody holds any more."""
        self._link(self._ends.prev, extent)
        self._count(extent.end - extent.start, extent.cached)

    def remove(self, extent: Extent) -> None:
        """Take an extent out: it is held again."""
        extent.prev.next = extent.next
        extent.next.prev = extent.prev
        extent.prev = extent.next = self._ends  # a neighbour must not live on because of it
        self._count(extent.start - extent.end, extent.cached)

    def take(self, blocks: int, forget: Callable[[Extent], None]) -> int:
        """Give up the first ``blocks`` blocks; returns how many of them were cached.

        ``forget`` is told of every extent of the prefix tree that is given up as a whole.
        """
        self.blocks -= blocks
        evicted, ends = 0, self._ends
        extent = ends.next
        while blocks:
            size = extent.end - extent.start
            taken = size if size < blocks else blocks
            blocks -= taken
            if extent.cached:
                evicted += taken
            if taken < size:
                extent.end -= taken
            else:
                if extent.content is not None:
                    forget(extent)
                after, extent.prev, extent.next = extent.next, ends, ends
                extent = after
        ends.next = extent
        extent.prev = ends
        self.cached -= evicted
        return evicted

    def follow(self, tail: Extent, head: Extent) -> None:
        """``head`` was split off the front of ``tail``: it is given up right after it."""
        self._link(tail, head)

    def _link(self, before: Extent, extent: Extent) -> None:
        after = before.next
        extent.prev, extent.next = before, after
        before.next = after.prev = extent

    def _count(self, blocks: int, cached: bool) -> None:
        self.blocks += blocks
        if cached:
            self.cached += blocks


class UnhashedFirst(FreeQueue):
    """The order of vLLM 0.33: blocks without a hash are reused first, the last released foremost."""

    def release(self, extent: Extent) -> None:
        """Append an extent that can be hit, prepend one that cannot."""
        self._link(self._ends.prev if extent.cached else self._ends, extent)
        self._count(extent.end - extent.start, extent.cached)

    def hashed(self) -> Iterator[Extent]:
        """The extents that can be hit, the last released first: they stand behind all others."""
        extent = self._ends.prev
        while extent.cached:
            yield extent
            extent = extent.prev


FREE_QUEUES: dict[str, type[FreeQueue]] = {"vllm-0.23": FreeQueue, "vllm-0.33": UnhashedFirst}
