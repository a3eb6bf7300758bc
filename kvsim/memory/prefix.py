"""The prefix tree of the paged allocator: which full blocks of a prompt are cached.

It answers as a map from chained block hashes to blocks would (a block is known by its content and
all that precedes it), at the price of the distinct runs that a prompt touches instead of its blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvsim.memory.extents import Content, Extent, FreeQueue


class Path:
    """The blocks of one sequence that are in the tree, which it holds."""

    __slots__ = ("content", "copies", "end", "leaf")

    def __init__(self, content: Content, leaf: Extent, end: int) -> None:
        self.content = content
        self.leaf = leaf
        """Last extent of the path; its ancestors are held too."""
        self.end = end
        """Blocks on the path; what the sequence has beyond is not in the tree."""
        self.copies: dict[int, Extent] | None = None
        """Second copies that it holds in place of the tree's own block, by block."""


class PrefixTree:
    """Extents by content, and who holds them. What nobody holds waits in the free queue.

    If nothing is ``cached``, forks still share, and the tree knows an extent only while it is held.
    """

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

    def hold(self, content: Content, hit: list[Extent], blocks: int) -> Path:
        """Let a sequence hold the first ``blocks`` blocks of what it hit."""
        if not hit:
            return Path(content, self.root, 0)
        if hit[-1].end > blocks:
            hit[-1] = self._split(hit[-1], blocks)
        for extent in hit:
            if not extent.refs:
                self._queue.remove(extent)
            extent.refs += 1
        return Path(content, hit[-1], blocks)

    def fork(self, path: Path, content: Content) -> Path:
        """Let another sequence hold what this one holds."""
        for extent in self.held(path):
            extent.refs += 1
        fork = Path(content, path.leaf, path.end)
        fork.copies = path.copies
        return fork

    def held(self, path: Path) -> Iterator[Extent]:
        """The extents that a path holds, the last first."""
        extent, root, copies = path.leaf, self.root, path.copies
        while extent is not root:
            yield copies.get(extent.start, extent) if copies else extent
            assert extent.parent is not None
            extent = extent.parent

    def release(self, path: Path) -> int:
        """Give up a path, its end first; returns how many blocks nobody holds any more."""
        blocks = 0
        for extent in self.held(path):
            extent.refs -= 1
            if not extent.refs:
                blocks += extent.end - extent.start
                assert extent.content is not None
                if self._cached:
                    extent.content = extent.content.part(extent.start, extent.end)
                else:
                    self.forget(extent)
                    extent.content = None
                self._queue.release(extent)
        return blocks

    def extend(self, path: Path, upto: int) -> None:
        """Put the sequence's blocks up to ``upto`` into the tree."""
        while path.end < upto:
            leaf = path.leaf
            alone = leaf.refs == 1 and not leaf.children and leaf is not self.root
            if alone and path.end != path.content.shared and not path.copies and not leaf.copies:
                leaf.end = path.end = upto
                leaf.content = path.content
            else:
                self._branch(path, upto)

    def _branch(self, path: Path, upto: int) -> None:
        """Add an extent under the path's leaf, or one more copy of a block that is there."""
        leaf, at, content = path.leaf, path.end, path.content
        while leaf.heir is not None:
            leaf = leaf.heir
        known = leaf.children.get(content.key(at))
        if known is None:
            path.leaf = extent = Extent(at, upto, cached=self._cached, refs=1)
            extent.content = content
            leaf.adopt(extent, content.key(at))
            path.end = upto
        else:
            self._copy(path, known if known.end == at + 1 else self._split(known, at + 1))

    def _copy(self, path: Path, known: Extent) -> None:
        """The path's next block is cached already, as ``known``; engines keep both."""
        copy = Extent(known.start, known.end, cached=self._cached, refs=1)
        copy.content = path.content
        copy.original = known
        known.copies = [*(known.copies or ()), copy]
        path.copies = {**(path.copies or {}), known.start: copy}
        path.leaf = known
        path.end = known.end

    def _split(self, extent: Extent, at: int) -> Extent:
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
