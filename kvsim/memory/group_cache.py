"""The prefix cache of hybrid models: a prefix is hit as far as all groups of layers agree."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from math import lcm

from kvsim.core import NO_MATCH, Match, Sequence, packed
from kvsim.memory.extents import Content
from kvsim.memory.layer_groups import Full, State
from kvsim.memory.layer_tables import Lease, Table
from kvsim.memory.pages import Chain, PagePool

WHOLE = 1 << 62
"""Tokens of an iteration without limit, or of a block that never ends."""


class GroupCache(PagePool):
    """Pages by what they hold: each group knows its own, by the content of a block and all before it.

    Hits are in blocks of the largest group. Only what a group's next token reads must be there: full
    attention asks for every block, a window for the last ones, a state for one snapshot.
    """

    def __init__(self, num_pages: int, groups: tuple[Full, ...], *, prefix_caching: bool) -> None:
        self.block_size = min(group.block_size for group in groups)
        self.prefix_caching = prefix_caching
        super().__init__(num_pages, len(groups), self.block_size)
        self._unit = lcm(*(group.block_size for group in groups))
        self.groups = tuple(group if prefix_caching else uncached(group) for group in groups)
        self._chains: dict[Sequence, Chain] = {}
        self._owners = count()

    def match(self, sequence: Sequence) -> Match:
        """The longest prefix short of the last token that every group has what it needs of."""
        if not self.prefix_caching:
            return NO_MATCH
        chain = self._chain(sequence)
        tokens = (sequence.num_tokens - 1) // self._unit * self._unit
        agreed = -1
        while tokens != agreed:
            agreed = tokens
            for index, group in enumerate(self.groups):
                tokens = self._longest(chain, index, group, tokens)
        return Match(tokens, [self._hit(chain, i, g, tokens) for i, g in enumerate(self.groups)])

    def _chain(self, sequence: Sequence) -> Chain:
        chain = self._chains.get(sequence)
        if chain is None:
            request, size = sequence.request, self.block_size
            ids = packed(request.hash_ids)
            described = min(request.prompt_tokens, len(ids) * request.hash_block)
            content = Content(ids, request.hash_block, described // size, size, None)
            chain = self._chains[sequence] = Chain(content, next(self._owners))
        return chain

    def _page_of(self, chain: Chain, index: int, group: Full, block: int) -> int | None:
        last = (block + 1) * (group.block_size // self.block_size) - 1
        return self._find((index, chain.hash(last)))

    def _longest(self, chain: Chain, index: int, group: Full, tokens: int) -> int:
        """The longest prefix up to ``tokens`` tokens of which the group has what comes next reads."""
        size, block = group.block_size, tokens // group.block_size - 1
        while block >= group.needed_from(tokens) // size:
            if self._page_of(chain, index, group, block) is None:
                tokens = block * size // self._unit * self._unit
                block = tokens // size
            block -= 1
        return tokens

    def _hit(self, chain: Chain, index: int, group: Full, tokens: int) -> Table:
        first = group.needed_from(tokens) // group.block_size
        last = tokens // group.block_size
        pages = [self._page_of(chain, index, group, block) for block in range(first, last)]
        return Table(index, group, first, [page for page in pages if page is not None])

    def _cache_prompt(self, lease: Lease, tokens: int) -> None:
        """Let others hit the full blocks of the prompt's first ``tokens`` tokens."""
        described = min(tokens, lease.chain.shared * self.block_size)
        for table in lease.tables:
            self._cache_full(lease, table, table.end, described)

    def _cache_full(self, lease: Lease, table: Table, end: int, tokens: int) -> None:
        """Name blocks up to ``end``, as far as the first ``tokens`` tokens fill them."""
        size, first = table.group.block_size, table.first
        full = min(end, tokens // size)
        if not self.prefix_caching or full <= table.named:
            return
        blocks = size // self.block_size
        for block in range(max(first, table.named), full):
            key = (table.index, lease.chain.hash((block + 1) * blocks - 1))
            self._name(table.pages[block - first], key)
        table.named = full


def uncached(group: Full) -> Full:
    """The group without prefix caching: a state needs no snapshots, so one page serves for ever."""
    return replace(group, block_size=WHOLE) if isinstance(group, State) else group
