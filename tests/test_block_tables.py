"""Allocators that name their blocks: tables lead to the right KV, whatever happened to the blocks.

Here memory holds, instead of numbers, what each slot's KV was computed from: the token and all before
it. An iteration writes the slots of its new tokens and then reads every slot that attention would.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.core import Request, Sequence
from kvsim.costs import Fixed
from kvsim.execution.replica import Executed
from kvsim.memory import ALLOCATORS
from kvsim.memory.block_table import BlockTable, Mapped
from kvsim.memory.mapped import MAPPED
from kvsim.memory.mapped_paged import MappedPaged
from kvsim.memory.mapped_radix import MappedRadix
from kvsim.memory.reservation import RESERVATIONS
from kvsim.routing import ROUTERS
from kvsim.scheduling import Chunked
from kvsim.simulation.cluster import simulate
from kvsim.simulation.silent import Silent
from tests.oracles.workloads import request_lists

POOL = 40
"""Slots: a few short sequences."""
Slot = tuple[object, ...]


def build(name: str, page: int, rule: str = "max") -> Mapped:
    """A mapped allocator of about :data:`POOL` slots."""
    if name == "paged":
        return MappedPaged(POOL // page + 1, block_size=page)
    if name == "radix":
        return MappedRadix(POOL, page_size=page)
    return MAPPED[name](POOL, RESERVATIONS[rule](POOL // 2))  # type: ignore[call-arg]


class Memory:
    """An executor whose KV says what it is."""

    def __init__(self, allocator: Mapped) -> None:
        self.allocator = allocator
        self.slots: dict[int, Slot] = {}
        self.rows: dict[Sequence, list[int]] = {}
        self.lengths: dict[Sequence, int] = {}
        self.reads = self.preemptions = 0

    def execute(self, prompts: Seq[tuple[Sequence, int]], decodes: Seq[Sequence]) -> None:
        """Write what is new, then read everything."""
        spans = [(one, one.num_computed, one.num_computed + new) for one, new in prompts]
        spans += [(one, self.lengths[one], self.lengths[one] + 1) for one in decodes]
        for sequence, start, end in spans:
            self.refresh(sequence, self.allocator.table(sequence))
            for position in range(start, end):
                self.slots[self.slot(sequence, position)] = meaning(sequence, position)
            self.lengths[sequence] = end
        for sequence, _, end in spans:
            for position in range(end):
                self.reads += 1
                assert self.slots[self.slot(sequence, position)] == meaning(sequence, position)

    def finish(self, sequence: Sequence) -> None:
        """Nothing is kept."""
        del self.rows[sequence], self.lengths[sequence]

    def refresh(self, sequence: Sequence, table: BlockTable) -> None:
        """Copy only the entries that changed, as a device's table is updated."""
        row = self.rows.setdefault(sequence, [])
        row[table.settled :] = table.blocks[table.settled :]
        table.settled = len(table.blocks)
        assert row == table.blocks

    def slot(self, sequence: Sequence, position: int) -> int:
        """Where the table leads."""
        row, size = self.rows[sequence], self.allocator.entry_tokens
        if size is None:
            return row[0] + position
        return row[position // size] * size + position % size


def meaning(sequence: Sequence, position: int) -> Slot:
    """What the KV of a token depends on: all ids up to its own, or whose it is alone."""
    request = sequence.request
    ids, width = request.hash_ids or (), request.hash_block
    if position < min(len(ids) * width, request.prompt_tokens):
        return (position, *ids[: position // width + 1])
    return (position, request.row)


def run(allocator: Mapped, requests: list[Request], budget: int = 16) -> Memory:
    """Serve the requests on memory that is read back in every iteration."""
    scheduler = Chunked(allocator, max_num_seqs=6, max_num_batched_tokens=budget, leaps=False)
    memory, ticks = Memory(allocator), count(0, 1_000_000)
    replica = Executed(
        0, scheduler, allocator, Fixed(), executor=memory, check=True, now=lambda: next(ticks)
    )
    simulate(requests, [replica], ROUTERS["round-robin"](), Silent())  # type: ignore[call-arg]
    memory.preemptions = scheduler.preemptions
    return memory


@pytest.mark.parametrize("name", sorted(MAPPED))
@settings(max_examples=60, deadline=None)
@given(requests=request_lists(18, 12), page=st.sampled_from([1, 2, 4]), budget=st.integers(6, 40))
def test_every_token_that_attention_reads_is_the_sequences_own(
    name: str, requests: list[Request], page: int, budget: int
) -> None:
    memory = run(build(name, page), requests, budget)
    assert memory.reads
    assert not memory.rows


def busy() -> list[Request]:
    """Prompts that share, and more of them than there is room for."""
    return [Request(row, row / 1e4, 16, 12, [1, 2, row % 3, row % 5], 4) for row in range(12)]


@pytest.mark.parametrize("name", ["paged", "radix"])
def test_the_busy_workload_shares_evicts_and_preempts(name: str) -> None:
    memory = run(allocator := build(name, 2), busy())
    assert allocator.evictions > 0
    assert memory.preemptions > 0


class FreesTooEarly(MappedPaged):
    """Puts the first block of a running sequence back into the free queue, in its last place."""

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        grown = super().grow(sequence, tokens)
        table, path = self.table(sequence).blocks, sequence.kv.path
        if grown and len(table) > path.end + 1:
            extent = next(iter(self._queue))
            self._tree.ids[extent].append(table[path.end])
            extent.end += 1
        return grown

    def check(self) -> None:
        """Do not notice: the reads must."""


def test_a_block_that_is_freed_early_is_noticed_by_who_reads_it() -> None:
    lone = [request._replace(hash_ids=None, hash_block=0) for request in busy()]
    with pytest.raises(AssertionError):
        run(FreesTooEarly(POOL // 2 + 1, block_size=2), lone)


@pytest.mark.parametrize("page", [2, 4])
def test_a_fork_shares_full_blocks_and_names_the_one_to_copy(page: int) -> None:
    pool = MappedPaged(20, block_size=page)
    parent, child = (Sequence(Request(0, 0.0, 9, 9), 0) for _ in range(2))
    assert pool.admit(parent, pool.match(parent), 9)
    assert pool.fork(parent, child, 9)
    ours, theirs = pool.table(parent).blocks, pool.table(child).blocks
    assert ours[: 9 // page] == theirs[: 9 // page]
    assert pool.copies == [(ours[-1], theirs[-1])]
    pool.check()


SIMULATED_ONLY = {"hybrid", "kvcached", "slab", "vattention"}
"""Allocators that do not drive real memory; vAttention's ranges are contiguous in virtual memory only."""


def test_every_allocator_has_a_mapped_one_that_decides_nothing_by_itself() -> None:
    assert MAPPED.keys() == ALLOCATORS.keys() - SIMULATED_ONLY
    decisions = {"match", "fits", "room", "usage", "join", "leave", "held_slots", "total_slots"}
    for name, mapped in MAPPED.items():
        assert issubclass(mapped, ALLOCATORS[name])
        for cls in mapped.__mro__[: mapped.__mro__.index(ALLOCATORS[name])]:
            assert not decisions & vars(cls).keys()


def test_blocks_are_given_out_in_ascending_order_and_reused_tail_first() -> None:
    pool = MappedPaged(6, block_size=4, prefix_caching=False)
    first, second = (Sequence(Request(row, 0.0, 10, 9), 0) for row in range(2))
    assert pool.admit(first, pool.match(first), 10)
    assert pool.table(first).blocks == [1, 2, 3]
    pool.free(first, 10, finished=True)
    assert pool.admit(second, pool.match(second), 10)
    assert pool.table(second).blocks == [4, 5, 3]
