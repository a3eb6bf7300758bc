"""Requests of several sequences: parallel samples and beams, forked, run and preempted together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim import Scenario, simulate
from kvsim.core import Leap, Request
from kvsim.memory import ALLOCATORS
from kvsim.memory.paged import Paged
from kvsim.protocols import Allocator
from kvsim.scheduling.chunked import Chunked
from kvsim.scheduling.continuous import Continuous
from kvsim.scheduling.preemption import PREEMPTIONS
from kvsim.scheduling.static import Static
from kvsim.scheduling.turnover import Turnover
from kvsim.scheduling.victims import VICTIMS
from kvsim.workload import open_trace, write_trace
from tests.contracts.test_allocators import build
from tests.oracles.costs import Crossing
from tests.oracles.moves import Link
from tests.oracles.plain_groups import PlainGroups
from tests.oracles.plain_loop import Limits
from tests.oracles.replay import Log, replay

COST = Crossing(base=10**9, per_context=10**5, per_token=10**7, per_pair=10**4)


class Held(Log):
    """Remembers what was held, and what sharing saved, after every iteration."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[int] = []
        self.saved: list[int] = []

    def leap(self, leap: Leap, allocator: Allocator) -> None:
        super().leap(leap, allocator)
        self.held.append(allocator.held_slots)
        self.saved.append(allocator.saved_slots)


def served(*requests: Request, pool: Allocator | None = None, **options: object) -> Held:
    memory = pool or Paged(1 + 100, block_size=4)
    engine = Chunked(memory, leaps=False, **options)  # type: ignore[arg-type]
    log = Held()
    replay(requests, engine, memory, COST, check=True, log=log)
    return log


def test_samples_hold_the_full_blocks_of_their_prompt_once() -> None:
    log = served(Request(0, 0.0, 10, 8, n=3))
    tables = [-(-(10 + generated) // 4) for generated in range(8)]
    assert log.held == [4 * 3, *(4 * (2 + 3 * (blocks - 2)) for blocks in tables[1:])]
    assert log.saved[1:] == [4 * 2 * 2] * 7


def test_a_request_of_several_samples_is_one_request_with_one_first_token() -> None:
    log = served(Request(0, 0.0, 10, 8, n=3))
    (seen,) = log.seen
    assert seen.first_token is not None
    assert seen.finished is not None
    assert log.iterations == 8  # one for the prompt, seven for the other tokens of all samples


@pytest.mark.parametrize(
    "request_", [Request(0, 0.0, 9, 1, n=4), Request(0, 0.0, 9, 1, beam_width=4)]
)
def test_answers_of_one_token_need_no_fork(request_: Request) -> None:
    assert served(request_).iterations == 1


def test_beams_share_more_than_samples_and_the_more_the_oftener_one_is_dropped() -> None:
    def saved(request: Request, rate: float) -> int:
        return sum(served(request, beam_turnover=rate).saved)

    beams = Request(0, 0.0, 10, 60, beam_width=4)
    samples = saved(Request(0, 0.0, 10, 60, n=4), 1.0)
    assert saved(beams, 0.0) == samples < saved(beams, 0.1) < saved(beams, 1.0)


def test_which_beams_are_dropped_follows_from_the_seed_and_the_row() -> None:
    def drops(seed: int, row: int) -> list[tuple[int, int, int]]:
        turnover = Turnover(0.5, 4, seed, row)
        return [(turnover.due, *turnover.draw()) for _ in range(20)]

    assert drops(1, 2) == drops(1, 2)
    assert drops(1, 2) != drops(1, 3)
    assert drops(1, 2) != drops(2, 2)
    assert all(dropped != forked for _, dropped, forked in drops(1, 2))


def test_a_group_is_preempted_as_a_whole_and_recomputes_its_prompt_once() -> None:
    first, group = Request(0, 0.0, 8, 40), Request(1, 0.001, 8, 20, n=3)
    pool = Paged(1 + 18, block_size=4, prefix_caching=False)
    log = served(first, group, pool=pool)
    sequence = next(s for s in log.sequences if s.request.row == 1)
    assert sequence.preemptions >= 1
    generated = 20 - 1
    assert (
        8 * sequence.preemptions
        < sequence.recomputed_tokens
        <= (8 + 3 * generated) * sequence.preemptions
    )


class Impatient(Log):
    """Takes a simulation that goes on for ever for what it is."""

    def leap(self, leap: Leap, allocator: Allocator) -> None:
        super().leap(leap, allocator)
        assert self.iterations < 10_000, "groups take each other's room for ever"


def test_groups_do_not_take_each_others_room_for_ever() -> None:
    requests = [
        Request(0, 0.0, 3, 12, n=3, priority=1),
        Request(1, 0.0, 7, 12, n=3, priority=2),
        Request(2, 0.001, 3, 12, n=3, priority=2),
    ]
    for rule in VICTIMS.values():
        memory = build("contiguous", 70, 1, 0, "oracle")
        engine = Chunked(memory, max_num_seqs=8, max_num_batched_tokens=8, victim=rule())
        assert len(replay(requests, engine, memory, COST, log=Impatient()).seen) == 3


@pytest.mark.parametrize("allocator", sorted(ALLOCATORS))
def test_who_finds_no_room_for_its_forks_waits_instead_of_computing_its_prompt_in_vain(
    allocator: str,
) -> None:
    """Allocators that copy all have room for two or three groups at a time, and some left."""
    pool = build(allocator, 1200, 4)
    log = served(*(Request(row, 0.005 * row, 50, 30, n=4) for row in range(12)), pool=pool)
    assert len(log.seen) == 12
    assert max(one.preemptions for one in log.seen) <= 1  # for the answers that grow


def test_what_is_too_wide_is_refused_with_a_reason() -> None:
    wide = Request(0, 0.0, 8, 4, n=5)
    for engine in (Chunked, Static):
        memory = Paged(1 + 100, block_size=4)
        log = replay([wide], engine(memory, max_num_seqs=4), memory, COST)
        assert "5 sequences exceed" in log.refused[0][1]


def test_a_group_must_fit_with_what_it_shares() -> None:
    """A prompt of 32 and three answers of 8: 32 + 3 * 8 slots where the prompt is shared."""
    group = Request(0, 0.0, 32, 8, n=3)
    for allocator, slots, fits in (
        ("paged", 56, True),
        ("paged", 52, False),
        ("contiguous", 56, False),
    ):
        memory = build(allocator, slots, 4, 0, "oracle")
        log = replay([group], Chunked(memory, max_num_seqs=4), memory, COST, check=True)
        assert bool(log.seen) is fits, (allocator, slots)


@st.composite
def mixed_requests(draw: st.DrawFn) -> list[Request]:
    """Single requests, samples and beams that share prefixes, with priorities."""
    width, arrival, requests = draw(st.sampled_from([1, 2, 4])), 0, []
    for row in range(draw(st.integers(1, 8))):
        arrival += draw(st.sampled_from([0, 0, 1, 7, 40, 300]))
        prompt = draw(st.integers(1, 30))
        blocks = -(-prompt // width)
        ids = draw(st.none() | st.lists(st.integers(1, 3), min_size=blocks, max_size=blocks))
        n, beams = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (1, 4)]))
        request = Request(
            row, arrival / 1000, prompt, draw(st.integers(1, 20)), ids, width if ids else 0
        )
        requests.append(request._replace(n=n, beam_width=beams, priority=draw(st.integers(0, 3))))
    return requests


@pytest.mark.parametrize("allocator", sorted(ALLOCATORS))
@pytest.mark.parametrize("preemption", sorted(PREEMPTIONS))
@settings(max_examples=40, deadline=None)
@given(
    requests=mixed_requests(),
    slots=st.integers(30, 200),
    page=st.sampled_from([1, 2, 4]),
    seats=st.sampled_from([1, 3, 4, 8]),
    spare_budget=st.sampled_from([0, 3, 30, None]),
    victim=st.sampled_from(sorted(VICTIMS)),
    host=st.sampled_from([0, 40, 1000]),
    admission=st.sampled_from(["hold", "overtake"]),
    turnover=st.sampled_from([1.0, 1.0, 0.3, 0.0]),
    threshold=st.sampled_from([0, 0, 3]),
    watermark=st.sampled_from([0.0, 0.0, 0.1]),
)
def test_leaps_change_nothing_whoever_goes_and_however_they_come_back(
    allocator: str,
    preemption: str,
    requests: list[Request],
    slots: int,
    page: int,
    seats: int,
    spare_budget: int | None,
    victim: str,
    host: int,
    admission: str,
    turnover: float,
    threshold: int,
    watermark: float,
) -> None:
    outcomes = []
    for leaps in (True, False):
        memory = build(allocator, slots, page, 0, "oracle")
        options = {} if preemption == "recompute" else {"host_gib": host, "admission": admission}
        policy = PREEMPTIONS[preemption](*([Link()] if options else []), **options)
        shared = {"victim": VICTIMS[victim](), "beam_turnover": turnover, "seed": 1, "leaps": leaps}
        engine: Chunked
        if spare_budget is None:
            engine = Continuous(memory, policy, max_num_seqs=seats, **shared)  # type: ignore[arg-type]
        else:
            engine = Chunked(
                memory,
                policy,
                max_num_seqs=seats,
                max_num_batched_tokens=seats + spare_budget,
                long_prefill_token_threshold=threshold,
                watermark=watermark,
                **shared,  # type: ignore[arg-type]
            )
        log = replay(requests, engine, memory, COST, check=True)
        assert len(log.seen) + len(log.refused) == len(requests)
        assert not memory.held_slots
        assert not memory.saved_slots
        assert not any(policy.kept(sequence) for sequence in log.sequences)
        recomputed = [sequence.recomputed_tokens for sequence in log.sequences]
        outcomes.append(
            (
                log.seen,
                log.refused,
                log.iterations,
                log.gaps,
                memory.evictions,
                policy.moved,
                recomputed,
            )
        )
    assert outcomes[0] == outcomes[1]


@settings(max_examples=150, deadline=None)
@given(
    requests=mixed_requests(),
    block=st.sampled_from([1, 2, 4, 7]),
    caching=st.booleans(),
    budget=st.sampled_from([64, 70, 200]),
    turnover=st.sampled_from([1.0, 0.4, 0.0]),
)
def test_forks_share_copy_and_drop_the_blocks_that_tables_written_out_do(
    requests: list[Request], block: int, caching: bool, budget: int, turnover: float
) -> None:
    requests = [request._replace(hash_ids=None, hash_block=0) for request in requests]
    oracle = PlainGroups(requests, Limits(3000, block, 64, budget), COST, turnover=turnover, seed=5)
    ended = {live.request.row: (live.first_token, live.finished) for live in oracle.run()}
    memory = Paged(3000, block_size=block, prefix_caching=caching)
    outcomes = {}
    for leaps in (False, True):
        engine = Chunked(
            memory,
            max_num_seqs=64,
            max_num_batched_tokens=budget,
            beam_turnover=turnover,
            seed=5,
            leaps=leaps,
        )
        log = outcomes[leaps] = Held()
        replay(requests, engine, memory, COST, check=True, log=log)
        assert {one.row: (one.first_token, one.finished) for one in log.seen} == ended
    assert [held // block for held in outcomes[False].held] == oracle.held


def test_a_summary_says_what_sharing_saves(tmp_path: Path) -> None:
    """Prompts of 640 and answers of 64, four of each: nearly three prompts of four are saved."""
    path = tmp_path / "trace.jsonl"
    path.write_text(
        "".join(
            json.dumps({"arrival": 10.0 * row, "prompt_tokens": 640, "output_tokens": 64, "n": 4})
            + "\n"
            for row in range(3)
        )
    )
    summary = simulate(Scenario(), path).summary
    assert summary["completed"] == 3
    assert summary["kv_saved_by_sharing"] == pytest.approx(3 * 640 / (4 * 688), abs=0.03)


def test_samples_beams_and_priorities_survive_writing_and_reading(tmp_path: Path) -> None:
    requests = [
        Request(0, 0.0, 10, 5, n=4),
        Request(1, 0.5, 10, 5, n=2, beam_width=4, priority=-3),
        Request(2, 1.0, 10, 5),
    ]
    for name in ("trace.jsonl", "trace.parquet"):
        write_trace(requests, str(tmp_path / name))
        assert list(open_trace(tmp_path / name)) == requests
    assert "priority" not in (tmp_path / "trace.jsonl").read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"n": 0}, "'n'"),
        ({"beam_width": "4"}, "'beam_width'"),
        ({"n": 4, "beam_width": 2}, "at most beam_width"),
        ({"priority": 1.5}, "'priority'"),
    ],
)
def test_a_number_of_samples_that_cannot_be_is_refused(
    tmp_path: Path, field: dict[str, object], said: str
) -> None:
    from kvsim.errors import TraceError

    path = tmp_path / "trace.jsonl"
    path.write_text(
        json.dumps({"arrival": 0, "prompt_tokens": 4, "output_tokens": 4, **field}) + "\n"
    )
    with pytest.raises(TraceError, match=said):
        list(open_trace(path))
