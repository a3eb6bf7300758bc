"""kvcached: paged blocks in physical pages that are mapped while a block in them is in use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kvsim.core import Match, Sequence
from kvsim.errors import ConfigError
from kvsim.memory.block_pool import Lease
from kvsim.memory.extents import Extent, UnhashedFirst
from kvsim.memory.mapped_paged import MappedPaged
from kvsim.memory.paged import Paged

PICOSECONDS_PER_US = 1_000_000


class KvCached(MappedPaged):
    """vLLM's blocks over virtual memory, of which only pages with a block in use take memory.

    A page of ``page_bytes`` bytes in each of ``tensors`` tensors holds ``page_blocks`` blocks. It is
    mapped when one of them is given out and goes back to the driver, for other models, when all are
    free, but for ``reserved_pages`` that stay mapped. Cached blocks pin their pages, so no more than
    ``max_cached_tokens`` tokens stay cached. The blocks that leave are chosen by ``selection``: ``page``
    takes those whose page has the fewest blocks in use, so that pages become free; ``age`` the least
    recently used. Mapping a page takes ``map_us`` microseconds in each tensor: ``hidden`` by a thread
    that maps ahead, or ``synchronous``, before the next iteration. Source: the kvcached repository
    (2026-08-20), whose times are of an A100: create 193, map 1.5, set access 36 microseconds. It gives
    out the free blocks of one page before those of the next; here that holds for what left together.
    """

    def __init__(
        self,
        num_blocks: int,
        *,
        block_size: int = 16,
        prefix_caching: bool = True,
        fixed_blocks: int = 0,
        slot_bytes: int = 131_072,
        tensors: int = 64,
        page_bytes: int = 2 << 20,
        reserved_pages: int = 10,
        max_cached_tokens: int = 16_000,
        selection: Literal["page", "age"] = "page",
        map_us: float = 230.5,
        mapping: Literal["hidden", "synchronous"] = "hidden",
    ) -> None:
        if min(reserved_pages, max_cached_tokens) < 0 or not 0 <= map_us <= 1e6:
            raise ConfigError(
                f"allocator.reserved_pages is {reserved_pages}, max_cached_tokens {max_cached_tokens}, "
                f"map_us {map_us}; accepted: 0 or more, and at most 1e6 microseconds"
            )
        self.page_blocks = page_bytes * tensors // (block_size * slot_bytes)
        if self.page_blocks < 1:
            raise ConfigError(
                f"allocator.page_bytes is {page_bytes}, less than a block in a tensor; accepted: at "
                f"least {-(-block_size * slot_bytes // tensors)}"
            )
        super().__init__(
            num_blocks,
            block_size=block_size,
            prefix_caching=prefix_caching,
            free_order="vllm-0.33",  # what was freed last is reused first: its page is mapped
            fixed_blocks=fixed_blocks,
        )
        self._in_use = [0] * (-(-(num_blocks - 1) // self.page_blocks))
        """Blocks of each page that somebody holds or that are cached."""
        self.pages = 0
        """Pages with a block in use."""
        self.mapped = 0
        """These, and the reserve."""
        self._reserve = reserved_pages
        self._most_cached = max_cached_tokens // block_size
        self._by_page = selection == "page"
        self._map_time = round(tensors * map_us * PICOSECONDS_PER_US)
        self._waits = mapping == "synchronous"
        self._unpaid = 0

    def admit(self, sequence: Sequence, match: Match, tokens: int, *, spare: int = 0) -> bool:
        """Take the hit and room for ``tokens`` tokens; blocks of constant state are pages' as well."""
        return Paged.admit(self, sequence, match, tokens, spare=spare)

    def fork(self, parent: Sequence, child: Sequence, tokens: int) -> bool:
        """Let ``child`` go on from the parent's tokens; nobody asks which block is copied."""
        forked = super().fork(parent, child, tokens)
        self.forks.clear()
        self.copies.clear()
        return forked

    def room(self, steps: int, sequence: Sequence | None = None, chunk: int = 0) -> int:
        """As in paged memory; chunks go one by one, as who gets which block decides what leaves."""
        return super().room(min(steps, 1) if sequence is not None else steps, sequence, chunk)

    def free(self, sequence: Sequence, tokens: int, *, finished: bool) -> None:
        """Give all blocks back, and let go what is cached beyond the limit."""
        path = self._tree.held(sequence.kv.path)
        shared = [one for one in path if one.refs == 1 and not one.cached]
        super().free(sequence, tokens, finished=finished)
        for extent in shared:
            self._use(self._tree.ids[extent], -1)
        self.trim(self._queue.cached - self._most_cached)
        self.mapped = min(self.mapped, self.pages + self._reserve)

    def _take(self, blocks: int) -> None:
        self._use(self._unused(blocks), 1)
        super()._take(blocks)
        if self.pages > self.mapped:
            self._unpaid += self.pages - self.mapped
            self.mapped = self.pages

    def waits(self) -> int:
        """Picoseconds that the next iteration waits for pages mapped since the last question."""
        pages, self._unpaid = self._unpaid, 0
        return pages * self._map_time if self._waits else 0

    def _unused(self, blocks: int) -> list[int]:
        """The free blocks without content among the next that the queue gives up."""
        found: list[int] = []
        for extent in self._queue:
            if blocks <= 0:
                break
            ids = self._tree.ids[extent][-blocks:]
            blocks -= len(ids)
            if not extent.cached:
                found += ids
        return found

    def _run(self, lease: Lease, start: int, end: int, *, cached: bool) -> Extent:
        extent = super()._run(lease, start, end, cached=cached)
        if not cached:
            self._use(self._tree.ids[extent], -1)
        return extent

    def _use(self, ids: list[int], sign: int) -> None:
        """Blocks come into use, or go out of it."""
        used, size = self._in_use, self.page_blocks
        for block in ids:
            page = (block - 1) // size
            before = used[page]
            used[page] = after = before + sign
            self.pages += (after > 0) - (before > 0)

    def _page(self, extent: Extent) -> int:
        """Where the last block of an extent lies; all the same to who goes by age."""
        return (self._tree.ids[extent][-1] - 1) // self.page_blocks if self._by_page else 0

    def trim(self, blocks: int) -> None:
        """Let go ``blocks`` cached blocks that nobody holds, from the ends of their prefixes.

        The ends in the page with the fewest blocks in use go first, the least recently used foremost;
        what then becomes an end waits for the next turn.
        """
        if blocks <= 0:
            return
        assert isinstance(self._queue, UnhashedFirst)
        idle = list(self._queue.hashed())[::-1]
        ages = {extent: age for age, extent in enumerate(idle)}
        ends: dict[int, list[Extent]] = {}
        waiting = [extent for extent in idle if _is_end(extent, ages)]
        gone, ids = list[int](), self._tree.ids
        while len(gone) < blocks:
            for extent in waiting:
                if extent in ids:
                    ends.setdefault(self._page(extent), []).append(extent)
            assert ends, "what is cached and free has an end"
            page = min(ends, key=lambda page: (self._in_use[page], page))
            waiting = []
            for extent in sorted(ends.pop(page), key=ages.__getitem__):
                if len(gone) < blocks and extent in ids and _is_end(extent, ages):
                    gone += self._let_go(extent, blocks - len(gone))
                    waiting += _next_ends(extent, ages)
        empty = Extent(0, blocks, cached=False)
        ids[empty] = sorted(gone)  # taken again page by page
        self._queue.release(empty)
        self.evictions += blocks

    def _let_go(self, extent: Extent, most: int) -> list[int]:
        """Cut off the end of an extent, by page no further than the page goes; returns its blocks."""
        tree, queue = self._tree, self._queue
        ids = tree.ids[extent]
        count = min(most, len(ids))
        if self._by_page:
            count = self._in_last_page(ids, count)
        gone = ids[-count:]
        if count == len(ids):
            queue.remove(extent)
            del tree.ids[extent]
            if extent.content is not None:
                tree.forget(extent)
        else:
            del ids[-count:]
            queue.blocks -= count
            queue.cached -= count
        extent.end -= count
        self._use(gone, -1)
        return gone

    def _in_last_page(self, ids: list[int], most: int) -> int:
        """How many blocks at the end, up to ``most``, lie in the page of the last."""
        first = (ids[-1] - 1) // self.page_blocks * self.page_blocks + 1
        page, count = range(first, first + self.page_blocks), 1
        while count < most and ids[-1 - count] in page:
            count += 1
        return count

    def check(self) -> None:
        """Also: pages count the blocks that are held or cached, and no more is cached than may be."""
        super().check()
        used = [0] * len(self._in_use)
        for block in range(1, self.num_blocks):
            used[(block - 1) // self.page_blocks] += 1
        for extent in self._queue:
            for block in () if extent.cached else self._tree.ids[extent]:
                used[(block - 1) // self.page_blocks] -= 1
        assert used == self._in_use
        assert self.pages == sum(count > 0 for count in used) <= self.mapped
        assert self._queue.cached <= self._most_cached


def _is_end(extent: Extent, ages: Mapping[Extent, int]) -> bool:
    """Whether no block loses its predecessor with it: none follows, or a copy that goes later stays."""
    same, age = _same(extent), ages[extent]
    return not same[0].children or any(ages.get(one, len(ages)) > age for one in same)


def _next_ends(extent: Extent, ages: Mapping[Extent, int]) -> list[Extent]:
    """What ends where some of an extent was let go: its rest, else what came before it."""
    before = extent if extent.end > extent.start else extent.parent
    return [] if before is None else [e for e in _same(before) if e in ages and _is_end(e, ages)]


def _same(extent: Extent) -> tuple[Extent, ...]:
    """All copies of an extent that there are, the one in the tree first."""
    first = extent.original or extent
    return (first, *(first.copies or ()))
