"""The prefix tree of the paged allocator: which full blocks of a prompt are cached.

It answers as a map from chained block hashes to blocks would (a block is known by its content and
all that precedes it), at the price of the distinct runs that a prompt touches instead of its blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvsim.memory.extents import Content, Extent, FreeQueue


class PrefixTree:
    """Cached extents by content. The queue of free blocks is told of splits."""

    def __init__(self, queue: FreeQueue, *, cached: bool) -> None:
        self._cached = cached
        self.root = Extent(0, 0, cached=True, refs=1)
        self._queue = queue

    def walk(self, content: Content) -> tuple[list[Extent], int]:
        """The extents along the longest cached prefix, and the blocks that they agree on."""
        path: list[Extent] = []
        at, extent = 0, self.root
        while extent.children:
            child = extent.children.get(content.key(at))
            if child is None:
                return path, at
            path.append(child)
            at = content.common(child)
            if at < child.end:
                return path, at
            extent = child
        return path, at

    def split(self, extent: Extent, at: int) -> Extent:
        """Cut an extent before block ``at``; returns the front, now its parent.

        The extent itself becomes the back: whoever holds it holds the front too, so a sequence need
        only remember its last extent.
        """
        front = Extent(extent.start, at, cached=extent.cached, refs=extent.refs)
        front.content = extent.content
        assert extent.parent is not None
        assert extent.content is not None
        extent.parent.adopt(front, extent.key)
        extent.start = at
        front.adopt(extent, extent.content.key(at))
        if not extent.refs:
            self._queue.follow(extent, front)
        return front

    def add(self, leaf: Extent, content: Content, start: int, end: int) -> Extent:
        """Hang a new extent, held once, under ``leaf``."""
        extent = Extent(start, end, cached=self._cached, refs=1)
        extent.content = content
        leaf.adopt(extent, content.key(start))
        return extent

    def forget(self, extent: Extent) -> None:
        """Drop an evicted extent; a copy of it, if there is one, takes its place."""
        if extent.original is not None:
            assert extent.original.copies is not None
            extent.original.copies.remove(extent)
        elif extent.copies:
            self._promote(extent, extent.copies)
        elif extent.parent is not None:
            assert not extent.children, "a cached block outlived its predecessor"
            del extent.parent.children[extent.key]

    def _promote(self, extent: Extent, copies: list[Extent]) -> None:
        heir = copies.pop(0)
        heir.original = None
        heir.copies = copies
        for copy in copies:
            copy.original = heir
        for key, child in list(extent.children.items()):
            heir.adopt(child, key)
        assert extent.parent is not None
        extent.parent.adopt(heir, extent.key)
        extent.copies = None
        extent.heir = heir

    def extents(self) -> Iterator[Extent]:
        """Every extent of the tree, copies included."""
        stack = list(self.root.children.values())
        while stack:
            extent = stack.pop()
            yield extent
            yield from extent.copies or ()
            stack.extend(extent.children.values())
