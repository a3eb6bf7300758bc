"""Block tables of hybrid models: a sequence has one for each group of layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvsim.memory.extents import Content
from kvsim.memory.layer_groups import Full
from kvsim.memory.pages import Run

if TYPE_CHECKING:
    from kvsim.memory.places import Place


class Table:
    """The pages of one group of layers that a sequence holds: blocks ``first`` to ``end`` (exclusive)."""

    __slots__ = ("end", "first", "group", "index", "named", "runs")

    def __init__(self, index: int, group: Full, first: int = 0) -> None:
        self.index = index
        self.group = group
        self.first = self.end = first
        self.runs: list[Run] = []
        """The pages, in order."""
        self.named = first
        """Blocks up to here can be hit."""

    def first_of(self, start: int, tokens: int, chunk: int) -> int:
        """The first block that an iteration from ``start`` to ``tokens`` tokens holds."""
        group = self.group
        needed = group.needed_from(group.origin(start, tokens, chunk)) // group.block_size
        return max(self.first, needed)

    def wanting(self, first: int, tokens: int) -> int:
        """Pages to be taken for ``tokens`` tokens, if those before ``first`` go."""
        return max(0, self.group.blocks(tokens) - max(self.end, first))

    def run_of(self, block: int) -> Run | None:
        """The run that a block lies in; None if the table does not reach it."""
        return next((run for run in self.runs if run.start <= block < run.end), None)


class Lease:
    """What one admitted sequence holds: a table for each group of layers."""

    __slots__ = ("content", "due", "joined", "order", "owns", "place", "tables", "tokens")

    def __init__(self, content: Content, place: Place, tables: list[Table], tokens: int) -> None:
        self.content = content
        self.place = place
        """Where the described part of its prompt ends."""
        self.owns = False
        """Whether it is where what the sequence generated ends."""
        self.tables = tables
        self.tokens = tokens
        """For which it has room; of a decoder, when it joined."""
        self.joined: int | None = None
        """Step at which it began to decode."""
        self.order = -1
        """Rank of its joining."""
        self.due = 0
        """Step at which it next takes or gives up a page."""
