"""How long a pool of pages lasts while sequences take pages and give up others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvsim.memory.layer_tables import Table


class Outlook:
    """What would become of ``free`` free pages, were sequences to go on; changes nothing.

    ``refs`` says how many sequences hold each page: a shared one is free when the last gives it up.
    """

    def __init__(self, refs: Mapping[int, int], free: int) -> None:
        self._refs = refs
        self._free = free
        self._given: dict[int, int] = {}
        self._takes: dict[int, int] = {}
        self._leaves: dict[int, list[int | None]] = {}

    def decodes(self, tables: Iterable[Table], tokens: int, steps: int) -> None:
        """A sequence of ``tokens`` tokens gains one in each of ``steps`` steps."""
        for table in tables:
            size = table.group.block_size
            for step in range(table.end * size - tokens, steps, size):
                self._takes[step] = self._takes.get(step, 0) + 1
            self._note_leaves(table, tokens, steps)

    def _note_leaves(self, table: Table, tokens: int, steps: int) -> None:
        """Pages that go by step; None stands for one that is taken in a step before."""
        block, held = table.first, len(table.pages)
        while (gone := table.group.released_at(block)) is not None and gone - tokens < steps:
            place = block - table.first
            page = table.pages[place] if place < held else None
            self._leaves.setdefault(max(0, gone - tokens), []).append(page)
            block += 1

    def last(self, steps: int) -> int:
        """Steps, up to ``steps``, for which the pages suffice; in each, pages go before any is taken."""
        for step in sorted(self._takes.keys() | self._leaves.keys()):
            self._free += sum(map(self._frees, self._leaves.get(step, ())))
            self._free -= self._takes.get(step, 0)
            if self._free < 0:
                return step
        return steps

    def _frees(self, page: int | None) -> bool:
        """Whether nobody holds a page once one more sequence has given it up."""
        if page is None:
            return True
        self._given[page] = self._given.get(page, 0) + 1
        return self._given[page] == self._refs[page]

    def grows(self, tables: Iterable[Table], start: int, tokens: int, chunk: int) -> bool:
        """Whether a sequence can then go on from ``start`` to ``tokens`` tokens."""
        for table in tables:
            first = table.first_of(start, tokens, chunk)
            self._free += sum(map(self._frees, table.leaving(first)))
            self._free -= table.wanting(first, tokens)
        return self._free >= 0
