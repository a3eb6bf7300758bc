"""Forked sequences share the blocks that they have in common and copy the one they both write to."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.core import Request, Sequence
from kvsim.memory.eviction.fifo import FIFO
from kvsim.memory.kvcached import KvCached
from kvsim.memory.mapped import MAPPED
from kvsim.memory.paged import Paged
from kvsim.memory.radix import Radix
from tests.contracts.test_allocators import build

BLOCK = 4


def admitted(pool: Paged, prompt: int, row: int = 0) -> Sequence:
    ids = list(range(-(-prompt // BLOCK)))
    sequence = Sequence(Request(row, 0.0, prompt, 100, ids, BLOCK), 0)
    assert pool.admit(sequence, pool.match(sequence), prompt)
    sequence.num_computed = prompt
    return sequence


def forked(pool: Paged, parent: Sequence, tokens: int) -> Sequence | None:
    child = Sequence(parent.request, 0)
    child.num_computed = child.num_tokens = tokens
    return child if pool.fork(parent, child, tokens) else None


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize(("prompt", "blocks"), [(8, 2), (9, 4), (11, 4)])
def test_a_fork_takes_one_block_if_the_last_is_partly_filled_and_none_otherwise(
    prompt: int, blocks: int, caching: bool
) -> None:
    pool = Paged(20, block_size=BLOCK, prefix_caching=caching)
    assert forked(pool, admitted(pool, prompt), prompt)
    assert pool.held_slots == blocks * BLOCK
    pool.check()


def test_what_a_fork_shares_outlives_its_parent() -> None:
    pool = Paged(20, block_size=BLOCK)
    parent = admitted(pool, 9)
    child = forked(pool, parent, 9)
    assert child is not None
    pool.free(parent, 9, finished=True)
    assert pool.held_slots == 3 * BLOCK
    pool.free(child, 9, finished=True)
    assert pool.held_slots == 0
    pool.check()


def test_a_fork_without_room_for_its_copy_changes_nothing() -> None:
    pool = Paged(1 + 3, block_size=BLOCK)
    parent = admitted(pool, 9)
    before = pool.usage()
    assert forked(pool, parent, 9) is None
    assert pool.usage() == before
    pool.check()


def test_a_preempted_fork_hits_what_its_parent_generated_before_the_fork_and_no_more() -> None:
    pool = Paged(40, block_size=BLOCK)
    parent = admitted(pool, 8)
    pool.join(parent)
    pool.advance(9)
    child = forked(pool, parent, 17)
    assert child is not None
    pool.advance(8)
    pool.free(parent, 25, finished=False)
    pool.free(child, 17, finished=False)
    child.num_tokens = 30
    assert pool.match(child).tokens == 16
    pool.check()


def by_policy(blocks: int, **options: Any) -> Paged:
    """Paged memory whose cached blocks leave by a policy."""
    return Paged(blocks, eviction=lambda capacity: FIFO(), **options)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(4, 30),
    st.booleans(),
    st.sampled_from([Paged, by_policy, KvCached]),
)
def test_shared_blocks_count_once_and_all_come_back(
    seed: int, blocks: int, caching: bool, make: Callable[..., Paged]
) -> None:
    """Against a naive count: blocks are shared exactly up to the fork, each held by its sequences.

    Without caching prompts are alike, and only forks may share.
    """
    rng = random.Random(seed)
    ids = () if caching else (1, 2, 3)
    pool = make(blocks + 1, block_size=BLOCK, prefix_caching=caching)
    tables: dict[Sequence, list[object]] = {}
    lengths: dict[Sequence, int] = {}
    for row in range(40):
        choice = rng.random()
        if choice < 0.3:
            prompt = rng.randint(1, 12)
            fresh = Sequence(Request(row, 0.0, prompt, 100, ids, BLOCK), 0)
            if pool.admit(fresh, pool.match(fresh), prompt):
                fresh.num_computed = prompt
                pool.join(fresh)
                tables[fresh] = [object() for _ in range(-(-prompt // BLOCK))]
                lengths[fresh] = prompt
        elif choice < 0.6 and tables:
            parent = rng.choice(list(tables))
            child = forked(pool, parent, lengths[parent])
            if child is not None:
                pool.join(child)
                full = lengths[parent] // BLOCK
                copied = [object() for _ in tables[parent][full:]]
                tables[child] = tables[parent][:full] + copied
                lengths[child] = lengths[parent]
        elif choice < 0.85 and pool.room(1):
            pool.advance(1)
            for sequence, table in tables.items():
                if lengths[sequence] % BLOCK == 0:
                    table.append(object())
                lengths[sequence] += 1
        elif tables:
            gone = rng.choice(list(tables))
            pool.free(gone, lengths.pop(gone), finished=rng.random() < 0.5)
            del tables[gone]
        held = {block for table in tables.values() for block in table}
        assert pool.held_slots == len(held) * BLOCK
        pool.check()


def test_a_decoder_that_is_preempted_after_it_grew_gives_the_new_block_back_too() -> None:
    pool = Paged(20, block_size=BLOCK)
    sequence = admitted(pool, 8)
    pool.join(sequence)
    assert pool.grow(sequence, 9)
    assert pool.held_slots == 3 * BLOCK
    pool.free(sequence, 8, finished=False)
    assert pool.held_slots == 0
    pool.check()


def test_a_fork_takes_the_constant_blocks_of_a_sequence_of_its_own() -> None:
    pool = Paged(1 + 20, block_size=4, fixed_blocks=3)
    parent, child = (Sequence(Request(row, 0.0, 8, 4), 0) for row in (0, 1))
    assert pool.admit(parent, pool.match(parent), 8)
    assert pool.held_slots == (2 + 3) * 4
    assert pool.fork(parent, child, 8)
    assert pool.held_slots == (2 + 3 + 3) * 4
    for sequence in (parent, child):
        pool.free(sequence, 8, finished=True)
        pool.check()
    assert pool.held_slots == 0


# Every allocator forks; what it shares differs.


@pytest.mark.parametrize(
    ("name", "shared"), [("paged", 8), ("radix", 8), ("contiguous", 0), ("buddy", 0)]
)
def test_what_two_forks_of_ten_tokens_share(name: str, shared: int) -> None:
    pool = build(name, 160, 4, 0, "oracle")
    parent, child = (Sequence(Request(0, 0.0, 10, 6), 0) for _ in range(2))
    assert pool.admit(parent, pool.match(parent), 10)
    alone = pool.held_slots
    assert pool.fork(parent, child, 10)
    assert pool.held_slots == 2 * alone - shared
    assert pool.saved_slots == shared
    for sequence in (child, parent):
        pool.free(sequence, 10, finished=True)
        pool.check()
    assert pool.held_slots == pool.saved_slots == 0


def test_radix_without_a_tree_copies_all() -> None:
    pool = Radix(160, page_size=4, prefix_caching=False)
    parent, child = (Sequence(Request(0, 0.0, 10, 6), 0) for _ in range(2))
    assert pool.admit(parent, pool.match(parent), 10)
    assert pool.fork(parent, child, 10)
    assert pool.held_slots == 24
    assert pool.saved_slots == 0


def test_siblings_in_a_radix_tree_are_never_taken_for_one_another() -> None:
    """Both generate a full page behind the same prompt, and both pages are cached apart."""
    pool = Radix(160, page_size=4)
    parent, child = (Sequence(Request(0, 0.0, 8, 20), 0) for _ in range(2))
    assert pool.admit(parent, pool.match(parent), 8)
    parent.num_computed = 8
    assert pool.fork(parent, child, 8)
    pool.join(parent)
    child.num_computed = 8
    pool.join(child)
    pool.advance(4)
    for sequence in (parent, child):
        pool.free(sequence, 12, finished=True)
        pool.check()
    assert pool.usage().cached == 8 + 4 + 4


@pytest.mark.parametrize("name", ["paged", "radix"])
def test_tables_of_real_memory_share_what_is_shared_and_name_what_is_copied(name: str) -> None:
    pool = MAPPED[name](
        *([41] if name == "paged" else [160]),
        **{"block_size" if name == "paged" else "page_size": 4},
    )  # type: ignore[call-arg]
    parent, child = (Sequence(Request(0, 0.0, 10, 6), 0) for _ in range(2))
    assert pool.admit(parent, pool.match(parent), 10)
    assert pool.fork(parent, child, 10)
    ours, theirs = (pool.table(sequence).blocks for sequence in (parent, child))
    assert ours[:2] == theirs[:2]
    assert pool.copies == [(ours[2], theirs[2])]
    pool.check()
