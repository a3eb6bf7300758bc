"""SGLang's radix cache: its rules one by one, against a naive copy, and against SGLang itself."""

from __future__ import annotations

import gzip
import json
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.core import NO_MATCH, Request, Sequence
from kvsim.errors import ConfigError
from kvsim.memory.eviction import LRU, Entry
from kvsim.memory.eviction.policies import EVICTIONS
from kvsim.memory.eviction.policy import ByPriority
from kvsim.memory.radix import Radix
from kvsim.memory.radix_content import content_of
from kvsim.memory.radix_tree import RadixTree
from kvsim.validation.radix import replay_sequential
from tests.oracles.radix_naive import naive_replay

GOLDEN = Path(__file__).parent / "golden" / "radix_conversation.json"


def request(row: int, prompt: int, ids: list[int], output: int = 1, width: int = 4) -> Request:
    return Request(row, 0.0, prompt, output, ids, width)


def cached(tree: RadixTree) -> list[tuple[int, int]]:
    return sorted((node.start, node.end) for node in tree)


def serve(memory: Radix, wanted: Request) -> int:
    """One request alone, start to end; returns its hit."""
    sequence = Sequence(wanted, 0)
    match = memory.match(sequence)
    assert memory.admit(sequence, match, wanted.prompt_tokens)
    finish(memory, sequence)
    return match.tokens


def finish(memory: Radix, sequence: Sequence) -> None:
    sequence.num_computed = sequence.num_tokens
    memory.join(sequence)
    steps = sequence.request.output_tokens - 1
    assert memory.room(steps) == steps
    memory.advance(steps)
    memory.free(sequence, sequence.num_computed + steps, finished=True)
    memory.check()


# Against SGLang.


def mooncake(path: Path) -> list[Request]:
    with gzip.open(path) as lines:
        rows = [json.loads(line) for line in islice(lines, 3000)]
    return [
        Request(i, 0.0, row["input_length"], row["output_length"], row["hash_ids"], 512)
        for i, row in enumerate(rows)
    ]


def test_every_recorded_decision_of_sglang_is_reproduced(shared: Path) -> None:
    requests = mooncake(shared / "traces" / "mooncake" / "conversation_trace.jsonl.gz")
    files = sorted((shared / "reference" / "sglang_radix").glob("*conversation*.json.gz"))
    assert files
    for path in files:
        with gzip.open(path) as stream:
            recorded = json.load(stream)
        meta = recorded["meta"]
        rows = replay_sequential(
            requests[: meta["requests"]], meta["capacity_tokens"], meta["page_size"]
        )
        assert [list(row) for row in rows] == recorded["rows"], path.name


@pytest.mark.parametrize("case", [0, 1])
def test_the_golden_decisions_of_sglang_are_reproduced(case: int) -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    requests = [
        Request(row, 0.0, prompt, output, [i for a, b in runs for i in range(a, b + 1)], 512)
        for row, (prompt, output, runs) in enumerate(golden["requests"])
    ]
    recorded = golden["cases"][case]
    rows = replay_sequential(requests, recorded["capacity_tokens"], recorded["page_size"])
    assert [list(row[3:]) for row in rows] == recorded["decisions"]


# Against the naive copy.


@st.composite
def traces(draw: st.DrawFn) -> list[Request]:
    """Prompts that share prefixes of a small tree, some cut inside an id or going on without ids."""
    width = draw(st.integers(1, 5))
    paths = draw(st.lists(st.lists(st.integers(0, 2), max_size=5), min_size=1, max_size=25))
    requests = []
    for row, path in enumerate(paths):
        ids = [int("1" + "".join(map(str, path[: i + 1]))) for i in range(len(path))]
        prompt = max(1, len(ids) * width + draw(st.integers(-width + 1, 4)))
        requests.append(Request(row, 0.0, prompt, draw(st.integers(1, 6)), ids or None, width))
    return requests


@given(traces(), st.integers(1, 4), st.integers(1, 80))
def test_extents_decide_as_single_tokens_do(
    requests: list[Request], page_size: int, capacity: int
) -> None:
    rows = [tuple(row) for row in replay_sequential(requests, capacity, page_size)]
    assert rows == naive_replay(requests, capacity, page_size)


@given(traces(), st.integers(1, 4))
def test_ids_count_only_after_equal_ids(requests: list[Request], page_size: int) -> None:
    """The same id at the same place under different parents names different tokens."""
    plain = [r._replace(hash_ids=[i % 3 for i in r.hash_ids or []] or None) for r in requests]
    rows = [tuple(row) for row in replay_sequential(plain, 40, page_size)]
    assert rows == naive_replay(plain, 40, page_size)


# Rule by rule.


def test_a_match_that_ends_inside_a_run_splits_it() -> None:
    tree = RadixTree(1, LRU())
    tree.insert(content_of(request(0, 12, [1, 2, 3])), 12)
    prefix = tree.find(content_of(request(1, 12, [1, 2, 9])), 12)
    assert (prefix.tokens, cached(tree)) == (8, [(0, 12)])
    tree.use(prefix)
    assert cached(tree) == [(0, 8), (8, 12)]
    tree.check([])


def test_a_page_that_is_shared_in_part_is_not_shared() -> None:
    tree = RadixTree(6, LRU())
    tree.insert(content_of(request(0, 12, [1, 2, 3])), 12)
    assert tree.find(content_of(request(1, 12, [1, 2, 9])), 12).tokens == 6
    assert tree.find(content_of(request(2, 12, [1, 8, 9])), 12).tokens == 0


def test_the_rest_of_a_run_counts_as_used_when_its_front_is_hit() -> None:
    tree = RadixTree(1, LRU())
    tree.insert(content_of(request(0, 8, [1, 2])), 8)
    tree.insert(content_of(request(1, 8, [5, 6])), 8)
    tree.use(tree.find(content_of(request(2, 8, [1, 7])), 8))
    assert tree.evict(1) == 8  # all of [5, 6], older now than either part of [1, 2]
    assert tree.find(content_of(request(3, 8, [1, 2])), 8).tokens == 8


def test_whole_leaves_go_oldest_first_and_then_their_parents() -> None:
    tree = RadixTree(1, LRU())
    for row, ids in enumerate([[1, 2], [1, 3, 4], [5]]):
        tree.insert(content_of(request(row, 4 * len(ids), ids)), 4 * len(ids))
    assert [tree.evict(1) for _ in range(4)] == [4, 8, 4, 4]
    assert tree.tokens == 0


def test_what_a_running_sequence_holds_is_never_evicted() -> None:
    tree = RadixTree(1, LRU())
    node = tree.insert(content_of(request(0, 8, [1, 2])), 8)
    tree.lock(node)
    tree.insert(content_of(request(1, 8, [1, 3])), 8)
    assert tree.evict(100) == 4
    tree.check([node])
    tree.unlock(node)
    assert tree.evict(100) == 8


def test_a_lock_counts_on_every_node_up_to_the_root() -> None:
    tree = RadixTree(1, LRU())
    ends = [
        tree.insert(content_of(request(row, 12, ids)), 12)
        for row, ids in enumerate([[1, 2, 3], [1, 2, 4]])
    ]
    for end in ends:
        tree.lock(end)
    assert sorted((n.start, n.end, n.locks) for n in tree) == [(0, 8, 2), (8, 12, 1), (8, 12, 1)]
    assert (tree.protected, tree.evictable) == (16, 0)
    tree.unlock(ends[0])
    assert sorted((n.start, n.locks) for n in tree) == [(0, 1), (8, 0), (8, 1)]
    assert (tree.protected, tree.evictable) == (12, 4)
    tree.check([ends[1]])


@st.composite
def prefix_trees(draw: st.DrawFn, depth: int = 3) -> list[list[int]]:
    """Paths of a random tree, depth first; every id is one edge's alone."""
    counter = iter(range(10**6))

    def below(path: list[int], levels: int) -> list[list[int]]:
        path = [*path, *(next(counter) for _ in range(draw(st.integers(1, 3))))]
        if not levels:
            return [path]
        children = draw(st.integers(0, 3))
        return [leaf for _ in range(children) for leaf in below(path, levels - 1)] or [path]

    return [leaf for _ in range(draw(st.integers(1, 3))) for leaf in below([], depth)]


@given(prefix_trees(), st.integers(1, 3), st.sampled_from([1, 2, 4]))
def test_in_depth_first_order_every_edge_is_computed_once(
    paths: list[list[int]], output: int, page_size: int
) -> None:
    """SGLang (arXiv:2312.07104), theorem 3.1, in a cache of the longest request."""
    batch = [request(row, 4 * len(ids), ids, output) for row, ids in enumerate(paths)]
    longest = max(r.prompt_tokens + -(-output // page_size) * page_size for r in batch)
    rows = list(replay_sequential(batch, longest, page_size))
    edges = 4 * len({i for ids in paths for i in ids})
    assert all(row.inserted for row in rows)
    assert sum(row.prompt - row.hit for row in rows) == edges


def test_ids_of_different_width_are_different_tokens() -> None:
    tree = RadixTree(1, LRU())
    tree.insert(content_of(request(0, 8, [1, 2], width=4)), 8)
    assert tree.find(content_of(request(1, 8, [1, 2], width=8)), 8).tokens == 0


def test_the_eviction_queue_stays_as_short_as_the_tree() -> None:
    tree = RadixTree(1, LRU())
    content = content_of(request(0, 8, [1, 2]))
    for _ in range(1000):
        node = tree.insert(content, 8)
        tree.lock(node)
        tree.unlock(node)
    assert isinstance(tree._queue, ByPriority)
    assert len(tree._queue._heap) < 100


def test_another_policy_is_one_class() -> None:
    class MostRecent:
        def priority(self, entry: Entry) -> int:
            return -entry.last_access

    tree = RadixTree(1, MostRecent())
    for row in range(3):
        tree.insert(content_of(request(row, 4, [row])), 4)
    tree.evict(4)
    assert tree.find(content_of(request(9, 4, [2])), 4).tokens == 0
    assert EVICTIONS["lru"] is LRU


# The allocator.


def test_a_hit_never_is_the_whole_prompt() -> None:
    memory = Radix(100, page_size=4)
    assert serve(memory, request(0, 16, [1, 2, 3, 4])) == 0
    assert serve(memory, request(1, 16, [1, 2, 3, 4])) == 12
    assert serve(Radix(100), request(1, 16, [1, 2, 3, 4])) == 0


def test_a_repeated_prompt_hits_all_but_its_last_token_with_pages_of_one() -> None:
    memory = Radix(100)
    serve(memory, request(0, 16, [1, 2, 3, 4]))
    assert serve(memory, request(1, 16, [1, 2, 3, 4])) == 15


def test_an_answer_is_cached_for_nobody_but_takes_room_until_evicted() -> None:
    memory = Radix(100)
    serve(memory, request(0, 8, [1, 2], output=5))
    assert memory.usage().cached == 12
    assert memory.evictions == 0
    serve(memory, request(1, 92, []))
    assert memory.evictions == 4  # the answer's leaf is enough


def test_the_leaf_is_cut_at_the_end_of_the_prompt_so_that_the_answer_goes_first() -> None:
    memory = Radix(100)
    serve(memory, request(0, 8, [1, 2], output=5))
    assert cached(memory._tree) == [(0, 8), (8, 12)]
    memory._tree.evict(1)
    assert cached(memory._tree) == [(0, 8)]


def test_equal_prompts_computed_side_by_side_keep_one_copy() -> None:
    memory = Radix(100)
    pair = [Sequence(request(row, 8, [1, 2]), 0) for row in range(2)]
    assert all(memory.admit(one, memory.match(one), 8) for one in pair)
    assert memory.held_slots == 16
    for one in pair:
        one.num_computed = 8
        memory.join(one)
    assert memory.held_slots == 8
    memory.check()


def test_each_chunk_of_a_prompt_is_cached_when_the_next_one_starts() -> None:
    memory = Radix(100)
    first, second = (Sequence(request(row, 12, [1, 2, 3]), 0) for row in range(2))
    assert memory.admit(first, NO_MATCH, 4)
    assert memory.match(second).tokens == 0
    assert memory.grow(first, 8)
    assert memory.match(second).tokens == 4


def test_a_chunk_that_others_hold_by_now_makes_room_for_the_next() -> None:
    memory = Radix(24)
    first, second = (Sequence(request(row, 12, [1, 2, 3]), 0) for row in range(2))
    assert all(memory.admit(one, NO_MATCH, 6) for one in (first, second))
    assert memory.grow(first, 12)
    assert memory.admit(Sequence(request(2, 6, []), 0), NO_MATCH, 6)
    assert memory.usage().free == 0
    assert memory.room(9, second, 6) == 1
    assert memory.grow(second, 12)  # the first 6 are the first sequence's now
    memory.check()


def test_a_chunk_that_another_left_behind_makes_no_room() -> None:
    memory = Radix(24)
    first, second = (Sequence(request(row, 18, [1, 2, 3, 4, 5]), 0) for row in range(2))
    assert memory.admit(first, NO_MATCH, 6)
    assert memory.admit(second, NO_MATCH, 6)
    memory.free(first, 6, finished=False)
    assert memory.admit(Sequence(request(2, 7, []), 0), NO_MATCH, 7)
    assert memory.usage()[-2:] == (6, 5)
    assert memory.room(9, second, 6) == 1
    assert not memory.grow(second, 18)
    assert memory.grow(second, 17)
    memory.check()


def test_a_prompt_preempted_in_the_middle_keeps_its_computed_chunks() -> None:
    memory = Radix(100)
    sequence = Sequence(request(0, 12, [1, 2, 3]), 0)
    memory.admit(sequence, NO_MATCH, 4)
    memory.grow(sequence, 8)
    memory.free(sequence, 8, finished=False)
    assert memory.match(sequence).tokens == 8


def test_a_preempted_sequence_keeps_its_prompt_and_loses_its_answer() -> None:
    memory = Radix(100)
    sequence = Sequence(request(0, 8, [1, 2], output=9), 0)
    memory.admit(sequence, NO_MATCH, 8)
    sequence.num_computed = 8
    memory.join(sequence)
    memory.advance(5)
    memory.free(sequence, 13, finished=False)
    assert memory.usage().cached == 8
    sequence.num_tokens = 14
    assert memory.match(sequence).tokens == 8


def test_a_decoder_that_is_preempted_after_it_got_its_page_gives_it_back() -> None:
    memory = Radix(16, page_size=4)
    sequence = Sequence(request(0, 8, [1, 2], output=9), 0)
    memory.admit(sequence, NO_MATCH, 8)
    sequence.num_computed = 8
    memory.join(sequence)
    assert memory.grow(sequence, 9)
    assert memory.grow(sequence, 9)
    assert memory.held_slots == 12
    memory.check()
    memory.free(sequence, 8, finished=False)
    assert memory.held_slots == 0
    memory.check()


def test_chunks_in_one_leap_leave_the_same_leaves_as_one_by_one() -> None:
    def leaves(leap: list[int]) -> list[tuple[int, int]]:
        memory = Radix(100)
        sequence = Sequence(request(0, 16, [1, 2, 3, 4]), 0)
        memory.admit(sequence, NO_MATCH, 4)
        for steps in leap:
            assert memory.room(steps, sequence, 4) == steps
            memory.advance(steps)
        sequence.num_computed = 16
        memory.join(sequence)
        return cached(memory._tree)

    assert leaves([3]) == leaves([1, 1, 1]) == [(0, 4), (4, 8), (8, 12), (12, 16)]


def test_room_for_a_prompt_counts_its_chunks_and_the_decoders() -> None:
    memory = Radix(20)
    decoder, prompt = Sequence(request(0, 4, [1], output=9), 0), Sequence(request(1, 12, [2]), 0)
    memory.admit(decoder, NO_MATCH, 4)
    decoder.num_computed = 4
    memory.join(decoder)
    memory.admit(prompt, NO_MATCH, 3)
    assert memory.room(9, prompt, 3) == 3  # 13 free slots, 4 a step
    assert memory.room(99) == 13


def test_constant_state_is_charged_to_each_running_sequence() -> None:
    memory = Radix(40, page_size=4, slots_per_sequence=5)
    sequence = Sequence(request(0, 6, []), 0)
    memory.admit(sequence, NO_MATCH, 6)
    assert memory.held_slots == 8 + 8
    assert not memory.fits(33)
    finish(memory, sequence)
    assert memory.held_slots == 0


def test_a_page_size_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="page_size is 0"):
        Radix(10, page_size=0)
