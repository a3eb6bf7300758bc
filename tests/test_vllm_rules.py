"""The rules of vLLM's block pool and scheduler, one short story each."""

from __future__ import annotations

import pytest

from kvsim.core import PICOSECONDS, Request, Sequence
from kvsim.memory.paged import Paged
from kvsim.scheduling.chunked import Chunked
from tests.oracles.costs import Crossing
from tests.oracles.replay import Log, replay

STEP = PICOSECONDS // 100
COST = Crossing(base=STEP, per_context=0, per_token=0, per_pair=0)
"""Every iteration takes 10 ms."""


def request(row: int, prompt: int, output: int, ids: list[int], at: float = 0.0) -> Request:
    return Request(row, at, prompt, output, ids, 16)


def serve(pool: Paged, *requests: Request) -> list[int]:
    """Serve requests one after another, alone; returns the tokens that each hit."""
    hits = []
    for one in requests:
        sequence = Sequence(one, 0)
        match = pool.match(sequence)
        assert pool.admit(sequence, match, one.prompt_tokens)
        pool.free(sequence, one.prompt_tokens, finished=True)
        pool.check()
        hits.append(match.tokens)
    return hits


def run(requests: list[Request], *, blocks: int, **options: int) -> Log:
    pool = Paged(blocks)
    return replay(requests, Chunked(pool, **options), pool, COST, check=True)


def test_a_prompt_that_is_cached_whole_computes_its_last_block_again() -> None:
    prompt = request(0, 64, 1, [1, 2, 3, 4])
    assert serve(Paged(100), prompt, prompt) == [0, 48]


def test_a_hit_ends_at_the_first_block_that_differs() -> None:
    first, second = request(0, 80, 1, [1, 2, 3, 4, 5]), request(1, 80, 1, [1, 2, 9, 4, 5])
    assert serve(Paged(100), first, second) == [0, 32]


def test_partial_blocks_are_not_shared() -> None:
    assert serve(Paged(100), request(0, 47, 1, [1, 2, 3]), request(1, 47, 1, [1, 2, 3])) == [0, 32]


def test_freed_blocks_hit_until_somebody_takes_them() -> None:
    pool = Paged(1 + 4)
    first = request(0, 64, 1, [1, 2, 3, 4])
    assert serve(pool, first) == [0]
    assert pool.usage().cached == 4 * 16  # nothing is evicted for being free
    assert pool.evictions == 0
    assert serve(pool, request(1, 16, 1, [9]), first) == [0, 48]
    assert pool.evictions == 2  # the tail for the newcomer, and the newcomer for the tail


def test_equal_blocks_that_were_computed_side_by_side_are_not_merged() -> None:
    pool = Paged(1 + 8)
    pair = [Sequence(request(row, 48, 1, [1, 2, 3]), 0) for row in range(2)]
    matches = [pool.match(one) for one in pair]
    assert [match.tokens for match in matches] == [0, 0]
    for one, match in zip(pair, matches, strict=True):
        assert pool.admit(one, match, 48)
    assert pool.held_slots == 2 * 48
    for one in pair:
        pool.free(one, 48, finished=True)
    assert pool.usage().cached == 2 * 48
    pool.check()
    assert serve(pool, request(2, 64, 1, [6, 7, 8, 9]), request(3, 64, 1, [1, 2, 3, 4])) == [0, 48]


def test_the_tail_of_a_prefix_is_evicted_before_its_head() -> None:
    pool = Paged(1 + 8)
    kept, other = request(0, 97, 1, [1, 2, 3, 4, 5, 6, 7]), request(1, 64, 1, [11, 12, 13, 14])
    assert serve(pool, kept, other, kept) == [0, 0, 4 * 16]


def test_the_least_recently_released_prefix_is_evicted_first() -> None:
    pool = Paged(1 + 8)
    a, b = request(0, 49, 1, [1, 2, 3, 4]), request(1, 49, 1, [5, 6, 7, 8])
    filler = request(2, 48, 1, [9, 10, 11])
    assert serve(pool, a, b, a, filler) == [0, 0, 48, 0]
    assert [pool.match(Sequence(one, 0)).tokens for one in (a, b)] == [48, 16]


@pytest.mark.parametrize(("order", "hit"), [("vllm-0.23", 16), ("vllm-0.33", 32)])
def test_newer_releases_reuse_blocks_without_a_hash_first(order: str, hit: int) -> None:
    pool = Paged(1 + 6, free_order=order)
    serve(pool, request(0, 33, 1, [1, 2, 3]), request(1, 15, 1, [4]))
    # Released in this order: [tail, 2, 1] of the first, then the only block of the second; two more
    # blocks were never used. Whoever needs four blocks takes those two, and two of the four.
    serve(pool, request(2, 64, 1, [21, 22, 23, 24]))
    assert serve(pool, request(3, 33, 1, [1, 2, 3])) == [hit]


def test_the_last_running_request_is_preempted_and_resumes_first() -> None:
    # Three blocks each fill the pool; the first to need a fourth takes it from the last admitted,
    # which then waits in front of the request that had been waiting all along.
    requests = [
        request(row, 48, 10, [10 * row + 1, 10 * row + 2, 10 * row + 3]) for row in range(4)
    ]
    log = run(requests, blocks=1 + 9, max_num_seqs=8, max_num_batched_tokens=256)
    seen = {one.row: one for one in log.seen}
    assert [seen[row].preemptions for row in range(4)] == [0, 0, 1, 0]
    assert [one.row for one in log.seen] == [0, 1, 2, 3]


def test_a_step_that_preempts_admits_nobody() -> None:
    # When the first request needs its fourth block, the second is preempted; the third would fit in
    # what it left, and there is budget for it, but it must wait for the next iteration.
    requests = [
        request(0, 48, 30, [1, 2, 3]),
        request(1, 64, 30, [4, 5, 6, 7]),
        request(2, 16, 1, [9], at=0.005),
    ]
    log = run(requests, blocks=1 + 7, max_num_seqs=2, max_num_batched_tokens=256)
    seen = {one.row: one for one in log.seen}
    assert seen[1].preemptions == 1
    first_decode = 1
    assert seen[2].scheduled is not None
    assert seen[2].scheduled > (first_decode + 1) * STEP


def test_decodes_go_first_and_a_prompt_takes_what_is_left_of_the_budget() -> None:
    requests = [request(0, 16, 50, [1]), request(1, 40, 2, [2, 3, 4], at=0.015)]
    log = run(requests, blocks=100, max_num_seqs=8, max_num_batched_tokens=17)
    seen = {one.row: one for one in log.seen}
    assert seen[1].scheduled == 2 * STEP
    assert seen[1].first_token == 5 * STEP  # chunks of 16, 16 and 8 tokens


def test_a_request_that_could_never_fit_is_refused_and_the_others_are_served() -> None:
    log = run(
        [request(0, 200, 5, [1]), request(1, 16, 5, [2])],
        blocks=1 + 8,
        max_num_seqs=8,
        max_num_batched_tokens=256,
    )
    assert log.refused == [(0, "205 tokens exceed the KV pool of 128 slots")]
    assert [one.row for one in log.seen] == [1]


def test_a_request_is_asked_again_when_the_prompt_it_shares_fills_a_block() -> None:
    # Chunks of half a block: the second request lacks a block while the first one's last block is
    # half full and cannot be hit, and has it in the next step, when that block is full.
    first, second = Request(0, 0.0, 8, 1, [1, 2], 4), Request(1, 0.0, 12, 1, [1, 2, 3], 4)
    pool = Paged(1 + 3, block_size=4)
    engine = Chunked(
        pool, max_num_seqs=4, max_num_batched_tokens=16, long_prefill_token_threshold=2
    )
    seen = {one.row: one for one in replay([first, second], engine, pool, COST, check=True).seen}
    assert (seen[1].scheduled, seen[1].cached) == (STEP, 4)
