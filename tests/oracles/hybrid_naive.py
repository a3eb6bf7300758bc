"""Block tables of hybrid models, token by token, from the masks of their attention alone.

Shares no code with kvsim's memory: what a group keeps follows from which tokens a query reads, and a
hit is found by trying every length. Slow on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class Kind(NamedTuple):
    """A group of layers; ``reach`` is its window or chunk."""

    name: Literal["full", "window", "chunked", "state"]
    block: int
    reach: int = 0

    def reads(self, query: int, key: int) -> bool:
        if self.name == "window":
            return query - key < self.reach
        if self.name == "chunked":
            return query // self.reach == key // self.reach
        return self.name == "full" or key == query - 1

    def needed(self, tokens: int) -> set[int]:
        """Blocks that the token behind ``tokens`` tokens reads."""
        return {key // self.block for key in range(tokens) if self.reads(tokens, key)}

    def kept(self, start: int, tokens: int) -> set[int]:
        """Blocks of an iteration that computes from ``start`` to ``tokens``."""
        if self.name != "state":
            written = range(
                start, max(tokens, start + 1)
            )  # the next token's block, if there is one
            return self.needed(start) | {key // self.block for key in written}
        boundaries = [at for at in range(start + 1, tokens + 1) if at % self.block == 0]
        last = {(tokens - 1) // self.block}
        if boundaries and tokens - start > 1:
            return last | {boundaries[-1] // self.block - 1}
        return last | self.needed(start)


@dataclass(eq=False)
class Live:
    """A sequence: what its tokens are, and its tables."""

    content: list[object]
    described: int
    tokens: int = 0
    tables: list[dict[int, int]] = field(default_factory=list)

    def prefix(self, end: int) -> tuple[object, ...]:
        own = ((self, at) for at in range(len(self.content), end))
        return (*self.content[:end], *own)


class Naive:
    def __init__(self, pages: int, kinds: list[Kind], unit: int) -> None:
        self.kinds = kinds
        self.unit = unit
        self.free = list(range(1, pages))
        self.refs = [0] * pages
        self.key: dict[int, object] = {}
        self.evictions = 0

    def held(self, lives: list[Live]) -> list[int]:
        """Pages by group, each once."""
        groups = range(len(self.kinds))
        return [len({p for live in lives for p in live.tables[g].values()}) for g in groups]

    def find(self, live: Live, group: int, block: int) -> int | None:
        key = (group, live.prefix((block + 1) * self.kinds[group].block))
        return next((page for page, known in self.key.items() if known == key), None)

    def hit(self, live: Live, known: int) -> int:
        for tokens in range((known - 1) // self.unit * self.unit, 0, -self.unit):
            every = ((g, b) for g, kind in enumerate(self.kinds) for b in kind.needed(tokens))
            if all(self.find(live, g, b) is not None for g, b in every):
                return tokens
        return 0

    def admit(self, live: Live, hit: int, tokens: int) -> None:
        live.tables = []
        for group, kind in enumerate(self.kinds):
            shared = kind.needed(hit) & kind.kept(hit, tokens)
            found = {b: self.find(live, group, b) for b in sorted(shared)}
            live.tables.append({b: page for b, page in found.items() if page is not None})
        for table in live.tables:
            for page in table.values():
                self.refs[page] += 1
                if page in self.free:
                    self.free.remove(page)
        live.tokens = hit
        self.fill(live, tokens)

    def shed(self, live: Live, tokens: int) -> None:
        for group, (kind, table) in enumerate(zip(self.kinds, live.tables, strict=True)):
            gone = sorted(set(table) - kind.kept(live.tokens, tokens))
            for block in gone:
                self.name(live, group, block, live.tokens)
            for block in reversed(gone):
                self.release(table.pop(block))

    def fill(self, live: Live, tokens: int) -> None:
        for group, (kind, table) in enumerate(zip(self.kinds, live.tables, strict=True)):
            for block in sorted(kind.kept(live.tokens, tokens) - set(table)):
                table[block] = page = self.free.pop(0)
                self.evictions += self.key.pop(page, None) is not None
                self.refs[page] = 1
            for block in table:
                self.name(live, group, block, min(tokens, live.described))
        live.tokens = tokens

    def grow(self, live: Live, tokens: int) -> None:
        self.shed(live, tokens)
        self.fill(live, tokens)

    def step(self, decoders: list[Live]) -> None:
        for live in decoders:
            self.shed(live, live.tokens + 1)
        for live in decoders:
            self.fill(live, live.tokens + 1)

    def name(self, live: Live, group: int, block: int, tokens: int) -> None:
        end = (block + 1) * self.kinds[group].block
        page = live.tables[group][block]
        if end <= tokens and page not in self.key:
            self.key[page] = (group, live.prefix(end))

    def end(self, live: Live) -> None:
        for group, table in enumerate(live.tables):
            for block in table:
                self.name(live, group, block, live.tokens)
            for block in sorted(table, reverse=True):
                self.release(table[block])
        live.tables = []

    def release(self, page: int) -> None:
        self.refs[page] -= 1
        if not self.refs[page]:
            self.free.append(page)
