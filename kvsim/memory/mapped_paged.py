"""The paged allocator with the ids of its blocks: vLLM's pool, block by block."""

from __future__ import annotations

from kvsim.core import Match, Sequence
from kvsim.errors import ConfigError
from kvsim.memory.block_pool import Lease
from kvsim.memory.block_table import BlockTable, Forked
from kvsim.memory.extents import Content, Extent, FreeQueue
from kvsim.memory.paged import Paged
from kvsim.memory.prefix import Path, PrefixTree


class NamedBlocks(PrefixTree):
    """A prefix tree that knows which block each place of an extent is.

    Block 0 is the null block; the others are free at first and are given out in ascending order.
    """

    def __init__(self, queue: FreeQueue, *, cached: bool) -> None:
        super().__init__(queue, cached=cached)
        self.ids: dict[Extent, list[int]] = {
            extent: list(range(extent.end, extent.start, -1)) for extent in queue
        }
        """Of every extent, those of the free queue included; blocks are given up from the end."""
        self.tables: dict[Path, BlockTable] = {}
        self.taken: list[int] = []
        """Blocks given up by the free queue that nobody has yet."""

    def take(self, queue: FreeQueue, blocks: int) -> None:
        """Name the next ``blocks`` blocks that the queue will give up."""
        for extent in queue:
            if not blocks:
                return
            ids = self.ids[extent]
            count = min(blocks, len(ids))
            self.taken += ids[: -count - 1 : -1]
            del ids[-count:]
            blocks -= count
            if not ids:
                del self.ids[extent]

    def give(self, path: Path) -> None:
        """Put the blocks that were taken at the end of a sequence's table."""
        self.tables[path].blocks += self.taken
        self.taken.clear()

    def hold(self, content: Content, hit: list[Extent], blocks: int) -> Path:
        """Let a sequence hold what it hit, and begin its table with it."""
        path = super().hold(content, hit, blocks)
        ids = [block for extent in hit for block in self.ids[extent]]
        self.tables[path] = BlockTable(ids, blocks * content.size)
        return path

    def fork(self, path: Path, content: Content) -> Path:
        """Let another sequence hold what this one holds."""
        fork = super().fork(path, content)
        self.tables[fork] = BlockTable(self.tables[path].blocks[: path.end])
        return fork

    def extend(self, path: Path, upto: int) -> None:
        """Put the sequence's blocks up to ``upto`` into the tree, with their ids."""
        before, blocks = path.end, self.tables[path].blocks
        super().extend(path, upto)
        for extent in self.held(path):
            if extent.end <= before:
                return
            ids = self.ids.setdefault(extent, [])
            ids += blocks[extent.start + len(ids) : extent.end]

    def _split(self, extent: Extent, at: int) -> Extent:
        front = super()._split(extent, at)
        ids, size = self.ids[extent], front.end - front.start
        self.ids[front], self.ids[extent] = ids[:size], ids[size:]
        return front


class MappedPaged(Forked, Paged):
    """:class:`Paged`, decision by decision, with a block table for each sequence.

    Ids follow the free queue: what is given up first is handed out first, so a block that was evicted
    here is the one that vLLM would have overwritten.
    """

    tree = NamedBlocks
    _tree: NamedBlocks

    @property
    def entries(self) -> int:
        """All blocks, the null block included."""
        return self.num_blocks

    @property
    def entry_tokens(self) -> int:
        """An entry is a block."""
        return self.block_size

    def table(self, sequence: Sequence) -> BlockTable:
        """The table of a running sequence."""
        return self._tree.tables[sequence.kv.path]

    def admit(self, sequence: Sequence, match: Match, tokens: int, *, spare: int = 0) -> bool:
        """Take the hit and room for ``tokens`` tokens; ConfigError where a table is not enough."""
        if self.fixed_blocks:
            raise ConfigError(
                f"sequences have {self.fixed_blocks} blocks of windows or states besides their "
                "tokens' blocks; accepted: models of full attention"
            )
        return super().admit(sequence, match, tokens, spare=spare)

    def _take(self, blocks: int) -> None:
        self._tree.take(self._queue, blocks)
        super()._take(blocks)

    def _cache_prompt(self, lease: Lease, tokens: int) -> None:
        self._tree.give(lease.path)
        super()._cache_prompt(lease, tokens)

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Make room for ``tokens`` tokens in all."""
        grown = super().grow(sequence, tokens)
        self._tree.give(sequence.kv.path)
        return grown

    def fork(self, parent: Sequence, child: Sequence, tokens: int) -> bool:
        """Let ``child`` go on from the parent's tokens, and note the block to be copied."""
        if not super().fork(parent, child, tokens):
            return False
        self._tree.give(child.kv.path)
        self.forks.append((parent, child, tokens))
        theirs, table = self.table(parent), self.table(child)
        table.filled = tokens
        full = tokens // self.block_size
        if tokens % self.block_size:
            self.copies.append((theirs.blocks[full], table.blocks[full]))
        return True

    def advance(self, steps: int, *, grown: bool = False) -> None:
        """All decoders gain ``steps`` tokens; who needs a block gets one, in order of admission."""
        if grown:
            super().advance(steps, grown=True)
            return
        for _ in range(steps):
            due = [one for one in self._leases.values() if one.phase == self._phases.step]
            super().advance(1)
            tree = self._tree
            for lease, block in zip(due, tree.taken, strict=True):
                tree.tables[lease.path].blocks.append(block)
            tree.taken.clear()

    def free(self, sequence: Sequence, tokens: int, *, finished: bool) -> None:
        """Give all blocks back; the table is gone."""
        path = sequence.kv.path
        super().free(sequence, tokens, finished=finished)
        del self._tree.tables[path]

    def _run(self, lease: Lease, start: int, end: int, *, cached: bool) -> Extent:
        extent = super()._run(lease, start, end, cached=cached)
        self._tree.ids[extent] = self._tree.tables[lease.path].blocks[start:end]
        assert len(self._tree.ids[extent]) == end - start
        return extent

    def check(self) -> None:
        """Also: every block but the null block has one owner, and tables agree with the tree."""
        super().check()
        tree, seen = self._tree, [block for ids in self._tree.ids.values() for block in ids]
        assert not tree.taken
        assert tree.ids.keys() == {*self._queue, *tree.extents()}
        for lease in self._leases.values():
            blocks = tree.tables[lease.path].blocks
            seen += blocks[lease.path.end :]
            for extent in tree.held(lease.path):
                assert tree.ids[extent] == blocks[extent.start : extent.end]
        assert sorted(seen) == list(range(1, self.num_blocks))
