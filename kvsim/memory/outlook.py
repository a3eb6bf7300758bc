"""How long a pool of pages lasts while sequences take pages and give up others."""

from __future__ import annotations

from collections.abc import Iterable

from kvsim.memory.layer_tables import Table
from kvsim.memory.pages import Run


class Outlook:
    """What would become of ``free`` free pages, were sequences to go on; changes nothing.

    A page that several hold is free when the last gives it up.
    """

    def __init__(self, free: int) -> None:
        self._free = free
        self._given: dict[tuple[Run, int], int] = {}
        self._takes: dict[int, int] = {}
        self._leaves: dict[int, list[tuple[Run | None, int]]] = {}

    def decodes(self, tables: Iterable[Table], tokens: int, steps: int) -> None:
        """A sequence of ``tokens`` tokens gains one in each of ``steps`` steps."""
        for table in tables:
            size = table.group.block_size
            for step in range(table.end * size - tokens, steps, size):
                self._takes[step] = self._takes.get(step, 0) + 1
            self._note_leaves(table, tokens, steps)

    def _note_leaves(self, table: Table, tokens: int, steps: int) -> None:
        """Blocks that go, by step; one that is taken in a step before is of no run."""
        block = table.first
        while (gone := table.group.released_at(block)) is not None and gone - tokens < steps:
            leaving = table.run_of(block), block
            self._leaves.setdefault(max(0, gone - tokens), []).append(leaving)
            block += 1

    def last(self, steps: int) -> int:
        """Steps, up to ``steps``, for which the pages suffice; in each, pages go before any is taken."""
        for step in sorted(self._takes.keys() | self._leaves.keys()):
            self._free += sum(self._frees(run, block) for run, block in self._leaves.get(step, ()))
            self._free -= self._takes.get(step, 0)
            if self._free < 0:
                return step
        return steps

    def _frees(self, run: Run | None, block: int) -> bool:
        """Whether nobody holds a page once one more sequence has given it up."""
        if run is None or len(run.holders) == 1:
            return True
        given = self._given[run, block] = self._given.get((run, block), 0) + 1
        return given == len(run.holders)

    def grows(self, tables: Iterable[Table], start: int, tokens: int, chunk: int) -> bool:
        """Whether a sequence can then go on from ``start`` to ``tokens`` tokens."""
        for table in tables:
            first = table.first_of(start, tokens, chunk)
            for run in table.runs:
                if run.start >= first:
                    break
                self._free += self._freed(run, min(run.end, first))
            self._free -= table.wanting(first, tokens)
        return self._free >= 0

    def _freed(self, run: Run, end: int) -> int:
        """Pages of a run that are free once one more sequence has given up those before ``end``."""
        if len(run.holders) == 1:
            return end - run.start
        return sum(self._frees(run, block) for block in range(run.start, end))
