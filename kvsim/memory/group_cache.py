"""The prefix cache of hybrid models: a prefix is hit as far as all groups of layers agree."""

from __future__ import annotations

from dataclasses import replace
from math import lcm

from kvsim.core import NO_MATCH, Match, Sequence
from kvsim.memory.extents import Content, content_of
from kvsim.memory.layer_groups import Full, State
from kvsim.memory.layer_tables import Lease, Table
from kvsim.memory.pages import PagePool, Run
from kvsim.memory.places import WHOLE, Places


class GroupCache(PagePool):
    """Pages by what they hold: each group knows its own, by the content of a block and all before it.

    Hits are in blocks of the largest group. Only what a group's next token reads must be there: full
    attention asks for every block, a window for the last ones, a state for one snapshot.
    """

    def __init__(self, num_pages: int, groups: tuple[Full, ...], *, prefix_caching: bool) -> None:
        self.block_size = min(group.block_size for group in groups)
        self.prefix_caching = prefix_caching
        self._unit = lcm(*(group.block_size for group in groups))
        self.groups = tuple(group if prefix_caching else uncached(group) for group in groups)
        self._places = Places([group.block_size // self.block_size for group in self.groups])
        super().__init__(
            num_pages,
            len(groups),
            self.block_size,
            cut=self._places.cut,
            forget=self._places.drop,
        )
        self._contents: dict[Sequence, Content] = {}

    def match(self, sequence: Sequence) -> Match:
        """The longest prefix short of the last token that every group has what it needs of."""
        if not self.prefix_caching:
            return NO_MATCH
        path = self._places.walk(self._content(sequence))
        covers = [self._places.cover(path, index) for index in range(len(self.groups))]
        tokens, agreed = (sequence.num_tokens - 1) // self._unit * self._unit, -1
        while tokens != agreed:
            agreed = tokens
            for group, cover in zip(self.groups, covers, strict=True):
                tokens = self._longest(group, cover, tokens)
        return Match(tokens, path)

    def _content(self, sequence: Sequence) -> Content:
        content = self._contents.get(sequence)
        if content is None:
            content = self._contents[sequence] = content_of(sequence, self.block_size)
        return content

    def _longest(self, group: Full, cover: list[tuple[int, int]], tokens: int) -> int:
        """The longest prefix up to ``tokens`` tokens of which the group has what comes next reads."""
        size, unit, at = group.block_size, self._unit, len(cover) - 1
        while True:
            first, end = group.needed_from(tokens) // size, tokens // size
            if first >= end:
                return tokens
            while at >= 0 and cover[at][0] >= end:
                at -= 1
            start, stop = cover[at] if at >= 0 else (0, 0)
            if stop < end:
                tokens = max(stop * size, group.needed_from(tokens)) // unit * unit
            elif start > first:
                tokens = (start - 1) * size // unit * unit
            else:
                return tokens

    def _cache_prompt(self, lease: Lease, tokens: int) -> None:
        """Let others hit the full blocks of the prompt's first ``tokens`` tokens."""
        described = min(tokens, lease.content.shared * self.block_size)
        for table in lease.tables:
            self._cache_full(lease, table, table.end, described)

    def _cache_full(self, lease: Lease, table: Table, end: int, tokens: int) -> None:
        """Let others hit blocks up to ``end``, as far as the first ``tokens`` tokens fill them."""
        full = min(end, tokens // table.group.block_size)
        if not self.prefix_caching or full <= table.named:
            return
        if full * table.group.block_size > lease.content.shared * self.block_size:
            self._place_own(lease)
        for run in list(table.runs):
            if run.start < full and not run.cached:
                self._name(run if run.end <= full else self._cut(run, full), lease)
        table.named = full

    def _name(self, run: Run, lease: Lease) -> None:
        run.cached, run.content, run.place = True, lease.place.content, lease.place
        self._places.add(run)

    def _place_own(self, lease: Lease) -> None:
        """What the sequence generated lies behind its prompt."""
        if not lease.owns:
            described, lease.owns = lease.place, True
            lease.place = self._places.hold(lease.content, WHOLE)
            self._places.let_go(described)


def uncached(group: Full) -> Full:
    """The group without prefix caching: a state needs no snapshots, so one page serves for ever."""
    return replace(group, block_size=WHOLE) if isinstance(group, State) else group
