"""The radix allocator with the ids of its pages."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from kvsim.core import Match, Sequence
from kvsim.errors import ConfigError
from kvsim.memory.block_table import BlockTable, Forked
from kvsim.memory.eviction import EvictionPolicy, EvictionQueue
from kvsim.memory.radix import Radix
from kvsim.memory.radix_cache import Lease
from kvsim.memory.radix_tree import Node, RadixTree


class NamedPages(RadixTree):
    """A radix tree that knows which page each place of a node is, and which pages are free."""

    def __init__(self, page_size: int, policy: EvictionPolicy | EvictionQueue) -> None:
        super().__init__(page_size, policy)
        self.ids: dict[Node, list[int]] = {}
        self.tables: dict[Lease, BlockTable] = {}
        """In order of admission."""
        self.taken: list[int] = []
        """Pages that were taken and that nobody has yet."""
        self.used = 0
        """Pages that were ever given out: ids below this."""
        self.free: deque[int] = deque()
        """Those that came back, the first to be given out foremost."""

    def take(self, pages: int) -> None:
        """Draw pages: those that came back, then new ones."""
        again = min(pages, len(self.free))
        self.taken += [self.free.popleft() for _ in range(again)]
        self.taken += range(self.used, self.used + pages - again)
        self.used += pages - again

    def give(self, lease: Lease) -> None:
        """Put the pages that were taken at the end of a sequence's table."""
        self.tables[lease].blocks += self.taken
        self.taken.clear()

    def above(self, node: Node, top: Node) -> Iterator[Node]:
        """The nodes from ``node`` up to, not including, ``top``."""
        while node is not top:
            yield node
            assert node.parent is not None
            node = node.parent

    def span(self, node: Node) -> tuple[int, int]:
        """The entries of a table that the node's pages take."""
        return node.start // self.page_size, node.end // self.page_size

    def _split(self, node: Node, at: int) -> Node:
        front = super()._split(node, at)
        size = (at - front.start) // self.page_size
        ids = self.ids[node]
        self.ids[front], self.ids[node] = ids[:size], ids[size:]
        return front

    def _drop(self, leaf: Node) -> None:
        self.free.extend(self.ids.pop(leaf))
        super()._drop(leaf)


class MappedRadix(Forked, Radix):
    """:class:`Radix`, decision by decision, with a table of pages for each sequence.

    Which free page is given out is decided here: the one that has been free longest, new ones last.
    """

    tree: type[RadixTree] = NamedPages
    _tree: NamedPages

    @property
    def entries(self) -> int:
        """All pages."""
        return self.total_slots // self.page_size

    @property
    def entry_tokens(self) -> int:
        """An entry is a page."""
        return self.page_size

    def table(self, sequence: Sequence) -> BlockTable:
        """The table of a running sequence."""
        return self._tree.tables[sequence.kv]

    def admit(self, sequence: Sequence, match: Match, tokens: int, *, spare: int = 0) -> bool:
        """Take the hit and room for ``tokens`` tokens; ConfigError where a table is not enough."""
        if self._constant:
            raise ConfigError(
                f"sequences have {self._constant} slots of windows or states besides their tokens' "
                "slots; accepted: models of full attention"
            )
        if not super().admit(sequence, match, tokens, spare=spare):
            return False
        tree, lease = self._tree, sequence.kv
        path = [*tree.above(lease.node, tree.root)]
        pages = [page for node in reversed(path) for page in tree.ids[node]]
        tree.tables[lease] = BlockTable(pages, match.tokens)
        tree.give(lease)
        return True

    def fork(self, parent: Sequence, child: Sequence, tokens: int) -> bool:
        """Let ``child`` go on from the parent's tokens, and note the pages to be copied."""
        if not super().fork(parent, child, tokens):
            return False
        tree, lease = self._tree, child.kv
        self.forks.append((parent, child, tokens))
        theirs, shared = tree.tables[parent.kv].blocks, lease.node.end // self.page_size
        table = tree.tables[lease] = BlockTable(theirs[:shared], tokens)
        tree.give(lease)
        self.copies.extend(zip(theirs[shared:], table.blocks[shared:], strict=False))
        return True

    def _take(self, slots: int) -> None:
        super()._take(slots)
        self._tree.take(slots // self.page_size)

    def _extend(self, lease: Lease, tokens: int) -> None:
        super()._extend(lease, tokens)
        self._tree.give(lease)

    def _grow_decoder(self, lease: Lease) -> bool:
        grown = super()._grow_decoder(lease)
        self._tree.give(lease)
        return grown

    def _advance_decoders(self, steps: int) -> None:
        for _ in range(steps):
            step, running = self._phases.step, self._tree.tables.items()
            due = [table for lease, table in running if lease.decoding and lease.phase == step]
            super()._advance_decoders(1)
            for table, page in zip(due, self._tree.taken, strict=True):
                table.blocks.append(page)
            self._tree.taken.clear()

    def _cache(self, lease: Lease, tokens: int) -> None:
        """Pages that enter the tree keep their ids; of duplicates the tree's are used from now on."""
        tree, before = self._tree, lease.node
        super()._cache(lease, tokens)
        table = tree.tables[lease]
        for node in reversed([*tree.above(lease.node, before)]):
            start, end = tree.span(node)
            own = table.blocks[start:end]
            if node in tree.ids:
                tree.free.extend(own)
                table.replace(start, tree.ids[node])
            else:
                tree.ids[node] = own

    def free(self, sequence: Sequence, tokens: int, *, finished: bool) -> None:
        """Give back what is not cached; the table is gone."""
        lease: Lease = sequence.kv
        super().free(sequence, tokens, finished=finished)
        table = self._tree.tables.pop(lease)
        self._tree.free.extend(table.blocks[lease.node.end // self.page_size :])

    def check(self) -> None:
        """Also: every page has one owner, and tables agree with the tree."""
        super().check()
        tree = self._tree
        assert not tree.taken
        assert tree.ids.keys() == {*tree}
        seen = [*tree.free, *(page for ids in tree.ids.values() for page in ids)]
        for lease in self._running:
            blocks = tree.tables[lease].blocks
            seen += blocks[lease.node.end // self.page_size :]
            for node in tree.above(lease.node, tree.root):
                start, end = tree.span(node)
                assert tree.ids[node] == blocks[start:end]
        assert sorted(seen) == list(range(tree.used))
        assert tree.used <= self.entries
