"""Pages for hybrid models: every group of layers has blocks of its own, all from one pool."""

from __future__ import annotations

from kvsim.core import Match, Sequence, Usage
from kvsim.errors import CapacityError
from kvsim.memory.agenda import Agenda
from kvsim.memory.group_cache import GroupCache
from kvsim.memory.layer_groups import Full, PagePlan
from kvsim.memory.layer_tables import Lease, Table
from kvsim.memory.outlook import Outlook
from kvsim.memory.pages import Run
from kvsim.memory.places import WHOLE, Piece


class Hybrid(GroupCache):
    """Blocks by group of layers over one pool of equal pages, as vLLM manages hybrid models.

    Full attention keeps every block, a sliding window and chunked attention those that the next token
    reads, recurrent layers a state and its snapshot at the last block boundary. A prefix is hit as far
    as all groups agree. Otherwise the rules are those of :class:`kvsim.memory.paged.Paged`. Source: vLLM
    0.23.0 ``v1/core/kv_cache_coordinator.py``, ``single_type_kv_cache_manager.py``. There a sequence
    gives up blocks just before it takes its next; here when it joins the decoders, of which then all
    do so before any takes one.

    ``num_pages`` pages; ``page_plan`` says which groups share them, without it all layers are of one group
    of full attention. A slot is a token's place in the page of one group, so that a token takes as
    many slots as there are groups that keep it. At most ``max_num_batched_tokens`` tokens of an
    iteration stay beyond a window; without, prompts may come whole.
    """

    def __init__(
        self,
        num_pages: int,
        page_plan: PagePlan | None = None,
        *,
        block_size: int = 16,
        prefix_caching: bool = True,
        max_num_batched_tokens: int | None = None,
    ) -> None:
        if num_pages < 2:
            raise CapacityError(f"a pool of {num_pages} pages has no page to give: 2 at least")
        groups = (Full(block_size),) if page_plan is None else page_plan.groups
        super().__init__(num_pages, groups, prefix_caching=prefix_caching)
        self._chunk = max_num_batched_tokens or WHOLE
        self._leases: dict[Sequence, Lease] = {}
        self._agenda = Agenda()

    def fits(self, tokens: int) -> bool:
        """Whether a sequence of ``tokens`` tokens fits when it is alone in the pool."""
        return sum(group.peak(tokens, self._chunk) for group in self.groups) < self.num_pages

    def fits_group(self, sequence: Sequence, tokens: int) -> bool:
        """Whether ``width`` sequences fit that share what full attention has of their prompt."""
        width, pages = sequence.request.width, 0
        for group in self.groups:
            keeps = group.released_at(0) is None
            shared = sequence.request.prompt_tokens // group.block_size if keeps else 0
            pages += shared + width * (group.peak(tokens, self._chunk) - shared)
        return pages < self.num_pages

    # Room.

    def admit(self, sequence: Sequence, match: Match, tokens: int, *, spare: int = 0) -> bool:
        """Take the hit and room for ``tokens`` tokens, if all known tokens would fit."""
        tables, pages = [], -(-spare // self.block_size)
        for index, group in enumerate(self.groups):
            table = self._table(index, group, match.tokens, tokens)
            tables.append(table)
            peak = group.peak(sequence.num_tokens, self._chunk) + table.first - table.end
            pages += max(peak, table.wanting(table.first, tokens))
        if pages > self._queue.blocks:
            return False
        hits = [self._places.pieces(match.handle or [], table) for table in tables]
        idle = (end - start for hit in hits for run, start, end in hit if not run.holders)
        if pages + sum(idle) > self._queue.blocks:
            return False
        for table, hit in zip(tables, hits, strict=True):
            self._hit(table, hit)
        content = self._content(sequence)
        described = content.shared if self.prefix_caching else 0
        lease = Lease(content, self._places.hold(content, described), tables, tokens)
        self._fill(lease, tokens)
        self._cache_prompt(lease, tokens)
        self._leases[sequence] = sequence.kv = lease
        return True

    def _table(self, index: int, group: Full, hit: int, tokens: int) -> Table:
        """A table for the blocks among ``hit`` tokens that an iteration up to ``tokens`` reads."""
        table = Table(index, group, group.needed_from(hit) // group.block_size)
        table.first = table.first_of(hit, tokens, self._chunk)
        table.end = table.named = max(table.first, hit // group.block_size)
        return table

    def _hit(self, table: Table, pieces: list[Piece]) -> None:
        """Let a table hold what was hit."""
        for run, start, end in pieces:
            if run.start < start:
                self._cut(run, start)
            self._share(run if run.end == end else self._cut(run, end), table)

    def _fill(self, lease: Lease, tokens: int) -> None:
        """Take the pages that ``tokens`` tokens need."""
        for table in lease.tables:
            self._take(table, table.group.blocks(tokens) - table.end)

    def _shed(self, lease: Lease, start: int, tokens: int) -> None:
        """Give up the pages that nothing from token ``start`` on reads; full ones stay cached."""
        for table in lease.tables:
            first = table.first_of(start, tokens, self._chunk)
            if first > table.first:
                self._cache_full(lease, table, min(first, table.end), start)
                self._leave(table, first)

    def _leave(self, table: Table, first: int) -> None:
        """Release the blocks before ``first``, the last one first."""
        leaving = [run for run in table.runs if run.start < first]
        if leaving and leaving[-1].end > first:
            leaving[-1] = self._cut(leaving[-1], first)
        del table.runs[: len(leaving)]
        table.first = first
        table.end = max(table.end, first)
        for run in reversed(leaving):
            self._release(run, table)

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        """Make room for ``tokens`` tokens in all: a longer prompt, or a decoder's next token."""
        lease: Lease = sequence.kv
        agenda = self._agenda
        start = agenda.tokens(lease)
        if lease.joined is not None and lease.due != agenda.step:
            return True
        outlook = Outlook(self._queue.blocks)
        if not outlook.grows(lease.tables, start, tokens, self._chunk):
            return False
        self._shed(lease, start, tokens)
        self._fill(lease, tokens)
        if lease.joined is None:
            lease.tokens = tokens
            self._cache_prompt(lease, tokens)
        else:
            agenda.cancel(lease)
            agenda.plan(lease, tokens, agenda.step + 1)
        return True

    def fork(self, parent: Sequence, child: Sequence, tokens: int) -> bool:
        """Let ``child`` go on from the parent's ``tokens`` computed tokens; False without room.

        Full blocks are shared; a block that is partly filled and a state are copied at once.
        """
        lease: Lease = parent.kv
        partial = sum(tokens % table.group.block_size > 0 for table in lease.tables)
        if partial > self._queue.blocks:
            return False
        content = lease.content.fork(child, tokens // self.block_size)
        place = self._places.hold(content, content.shared if self.prefix_caching else 0)
        tables = [self._twin(table, tokens // table.group.block_size) for table in lease.tables]
        twin = Lease(content, place, tables, tokens)
        self._fill(twin, tokens)
        self._contents[child] = content
        self._leases[child] = child.kv = twin
        return True

    def _twin(self, table: Table, full: int) -> Table:
        """Another table that shares the blocks before ``full``."""
        twin = Table(table.index, table.group, table.first)
        for run in list(table.runs):
            if run.start < full:
                self._share(run if run.end <= full else self._cut(run, full), twin)
        twin.end, twin.named = max(full, table.first), table.named
        return twin

    # Decoders.

    def join(self, sequence: Sequence) -> None:
        """From now on the sequence gains one token a step."""
        lease: Lease = sequence.kv
        self._shed(lease, lease.tokens, lease.tokens)
        self._agenda.join(lease)

    def leave(self, sequence: Sequence, tokens: int) -> None:
        """The sequence stops gaining tokens and keeps its pages."""
        self._agenda.leave(sequence.kv, tokens)

    def room(self, steps: int, sequence: Sequence | None = None, chunk: int = 0) -> int:
        """Steps for which every decoder (and the chunk) can grow without preempting anyone.

        Chunks go one by one: what they give up in between changes who leaves the cache next.
        """
        agenda = self._agenda
        if sequence is None:
            most = sum(-(-steps // group.block_size) for group in self.groups)
            if most * len(agenda.decoders) <= self._queue.blocks:
                return steps
        steps = steps if sequence is None else min(steps, 1)
        outlook, until = Outlook(self._queue.blocks), agenda.step + steps
        for lease in [one for one in agenda.decoders if one.due < until]:
            outlook.decodes(lease.tables, agenda.tokens(lease), steps)
        room = outlook.last(steps)
        if sequence is None or not room:
            return room
        lease = sequence.kv
        start = lease.tokens
        return int(outlook.grows(lease.tables, start, sequence.num_computed + chunk, self._chunk))

    def advance(self, steps: int, *, grown: bool = False) -> None:
        """All decoders gain ``steps`` tokens, and the pages for them."""
        agenda = self._agenda
        if not agenda.decoders:
            agenda.step += steps
            return
        for _ in range(steps):
            tokens = {lease: agenda.tokens(lease) for lease in agenda.pop()}
            for lease, start in tokens.items():
                self._shed(lease, start, start + 1)
            agenda.step += 1
            for lease, start in tokens.items():
                self._fill(lease, start + 1)
                agenda.plan(lease, start + 1, agenda.step)

    def free(self, sequence: Sequence, tokens: int, *, finished: bool) -> None:
        """Give all pages back, of each group the last first; full ones stay cached."""
        lease: Lease = sequence.kv
        if lease.joined is not None:
            self.leave(sequence, tokens)
        for table in lease.tables:
            self._cache_full(lease, table, table.end, tokens - sequence.unhashed)
            for run in reversed(table.runs):
                self._release(run, table)
        self._places.let_go(lease.place)
        sequence.kv = None
        del self._leases[sequence]
        if finished:
            self._contents.pop(sequence, None)

    # The books.

    def usage(self) -> Usage:
        """A last block's empty slots count as internal fragmentation until they are filled."""
        internal, size = sum(map(self._empty, self._leases.values())), self.block_size
        queue = self._queue
        return Usage(
            used=self.held_slots - internal,
            internal=internal,
            reserved=0,
            external=0,
            cached=queue.cached * size,
            free=(queue.blocks - queue.cached) * size,
        )

    def _empty(self, lease: Lease) -> int:
        tokens, size = self._agenda.tokens(lease), self.block_size
        tables = (table for table in lease.tables if table.runs)
        return sum(
            table.group.empty(table.end, tokens) * size // table.group.block_size
            for table in tables
        )

    def peaks(self) -> dict[str, float]:
        """The highest share of the pool that each kind of layers has held, groups summed."""
        shares: dict[str, float] = {}
        for group, pages in zip(self.groups, self.peak, strict=True):
            shares[group.name] = shares.get(group.name, 0.0) + pages / (self.num_pages - 1)
        return shares

    def check(self) -> None:
        """Pages are conserved, each reference has a holder, and every group has what it will read."""
        holders: dict[Run, set[Table]] = {}
        for lease in self._leases.values():
            for table in lease.tables:
                self._covers(table, self._agenda.tokens(lease))
                for run in table.runs:
                    holders.setdefault(run, set()).add(table)
        held, shared = [0] * len(self.groups), 0
        for run, tables in holders.items():
            assert tables == run.holders.keys()
            held[run.group] += run.end - run.start
            shared += (run.end - run.start) * (len(tables) - 1)
        assert held == self.held
        assert sum(held) + self._queue.blocks == self.num_pages - 1
        assert self._queue.blocks == sum(run.end - run.start for run in self._queue)
        assert not holders.keys() & set(self._queue)
        assert self.saved_slots == shared * self.block_size
        self._places.check(set(holders) | set(self._queue))

    def _covers(self, table: Table, tokens: int) -> None:
        group = table.group
        assert table.first <= group.needed_from(tokens) // group.block_size
        assert table.end >= group.blocks(tokens)
        ends = [table.first, *(run.end for run in table.runs)]
        assert ends == [*(run.start for run in table.runs), table.end]
