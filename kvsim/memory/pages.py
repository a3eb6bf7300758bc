"""Pages of equal size that groups of layers take from one pool, in runs of consecutive blocks.

Who holds a block of a prefix mostly holds those beside it too. So nothing is kept page by page: a
:class:`Run` is as many pages of one group as were taken, and are held, together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kvsim.memory.extents import Extent, FreeQueue

if TYPE_CHECKING:
    from kvsim.memory.layer_tables import Table


class Run(Extent):
    """Pages of blocks ``start`` to ``end`` (exclusive) of a group; they have the same holders.

    ``cached`` says that they can be hit. Nobody's run waits in the queue.
    """

    __slots__ = ("group", "holders", "place")

    def __init__(self, group: int, start: int, end: int, *, cached: bool = False) -> None:
        super().__init__(start, end, cached=cached)
        self.group = group
        self.holders: dict[Table, None] = {}
        self.place: Extent | None = None
        """Where its content lies, or ends; None while nobody can hit it."""


class PagePool:
    """Pages 1 to ``num_pages`` - 1; what nobody holds waits in the order in which it was given back.

    Equal pages are not merged. Page 0 is never used (the null block). ``cut`` and ``forget`` are told
    of the runs that others could hit: of one's front that is cut off, and of one that is given up.
    """

    def __init__(
        self,
        num_pages: int,
        groups: int,
        slots: int,
        *,
        cut: Callable[[Run, Run], None],
        forget: Callable[[Run], None],
    ) -> None:
        self.num_pages = num_pages
        self.evictions = 0
        self.saved_slots = 0
        self.held = [0] * groups
        """Pages that running sequences hold, by group; a shared one counts once."""
        self.peak = [0] * groups
        self._slots = slots
        self._queue = FreeQueue(num_pages - 1)
        self._on_cut = cut
        self._on_forget = forget

    @property
    def total_slots(self) -> int:
        """Slots of all pages but the null block."""
        return (self.num_pages - 1) * self._slots

    @property
    def held_slots(self) -> int:
        """Slots of the pages that running sequences hold; a shared page counts once."""
        return sum(self.held) * self._slots

    def _take(self, table: Table, blocks: int) -> None:
        """Give a table its next blocks, in pages that nobody holds; what these kept is gone."""
        if blocks <= 0:
            return
        self.evictions += self._queue.take(blocks, self._forget)
        last = table.runs[-1] if table.runs else None
        if last is None or last.cached or len(last.holders) > 1:
            last = Run(table.index, table.end, table.end)
            last.holders[table] = None
            table.runs.append(last)
        last.end = table.end = table.end + blocks
        self._hold(table.index, blocks)

    def _forget(self, run: Extent) -> None:
        assert isinstance(run, Run)
        self._on_forget(run)

    def _hold(self, group: int, blocks: int) -> None:
        self.held[group] += blocks
        if self.held[group] > self.peak[group]:
            self.peak[group] = self.held[group]

    def _cut(self, run: Run, at: int) -> Run:
        """Cut a run before block ``at``; returns the front, the run itself becomes the back."""
        front = Run(run.group, run.start, at, cached=run.cached)
        front.content, front.place = run.content, run.place
        front.holders = dict(run.holders)
        for table in run.holders:
            table.runs.insert(table.runs.index(run), front)
        run.start = at
        if run.cached:
            self._on_cut(front, run)
        if not run.holders:
            self._queue.follow(run, front)
        return front

    def _share(self, run: Run, table: Table) -> None:
        """One more table holds a run, behind what it has."""
        blocks = run.end - run.start
        if run.holders:
            self.saved_slots += blocks * self._slots
        else:
            self._queue.remove(run)
            self._hold(run.group, blocks)
        run.holders[table] = None
        table.runs.append(run)

    def _release(self, run: Run, table: Table) -> None:
        """One table less holds a run; nobody's goes to the end of the queue, its last page first."""
        blocks = run.end - run.start
        del run.holders[table]
        if run.holders:
            self.saved_slots -= blocks * self._slots
        else:
            self._queue.release(run)
            self.held[run.group] -= blocks
