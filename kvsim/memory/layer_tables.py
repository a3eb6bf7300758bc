"""Block tables of hybrid models: a sequence has one for each group of layers."""

from __future__ import annotations

from collections.abc import Iterable

from kvsim.memory.layer_groups import Full
from kvsim.memory.pages import Chain


class Table:
    """The pages of one group of layers that a sequence holds: consecutive blocks from ``first`` on."""

    __slots__ = ("first", "group", "index", "named", "pages")

    def __init__(self, index: int, group: Full, first: int = 0, pages: Iterable[int] = ()) -> None:
        self.index = index
        self.group = group
        self.first = first
        self.pages = list(pages)
        self.named = self.end
        """Blocks up to here can be hit."""

    @property
    def end(self) -> int:
        """The block after the last."""
        return self.first + len(self.pages)

    def first_of(self, start: int, tokens: int, chunk: int) -> int:
        """The first block that an iteration from ``start`` to ``tokens`` tokens holds."""
        group = self.group
        needed = group.needed_from(group.origin(start, tokens, chunk)) // group.block_size
        return max(self.first, needed)

    def leaving(self, first: int) -> list[int]:
        """Pages of blocks before ``first``."""
        return self.pages[: first - self.first]

    def wanting(self, first: int, tokens: int) -> int:
        """Pages to be taken for ``tokens`` tokens, if those before ``first`` go."""
        return max(0, self.group.blocks(tokens) - max(self.end, first))


class Lease:
    """What one admitted sequence holds: a table for each group of layers."""

    __slots__ = ("chain", "due", "joined", "order", "tables", "tokens")

    def __init__(self, chain: Chain, tables: list[Table], tokens: int) -> None:
        self.chain = chain
        self.tables = tables
        self.tokens = tokens
        """For which it has room; of a decoder, when it joined."""
        self.joined: int | None = None
        """Step at which it began to decode."""
        self.order = -1
        """Rank of its joining."""
        self.due = 0
        """Step at which it next takes or gives up a page."""
