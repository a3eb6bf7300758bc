"""Leaps change nothing that anyone can observe, whatever the allocator and the scheduler."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.catalog.hardware import load_gpu
from kvsim.catalog.models import load_model
from kvsim.core import Leap, Request, Sequence
from kvsim.costs.roofline import Roofline
from kvsim.layout import KVLayout
from kvsim.memory import ALLOCATORS
from kvsim.memory.contiguous import Contiguous
from kvsim.memory.paged import Paged
from kvsim.memory.reservation import RESERVATIONS
from kvsim.protocols import Allocator
from kvsim.routing import RoundRobin
from kvsim.scheduling import SCHEDULERS
from kvsim.scheduling.chunked import Chunked
from kvsim.simulation.cluster import simulate
from kvsim.simulation.replica import Replica
from tests.contracts.test_allocators import build
from tests.oracles.costs import Crossing
from tests.oracles.replay import Log, replay
from tests.oracles.workloads import request_lists
from tests.test_exact_replay import COSTS, on_boundaries


@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
@pytest.mark.parametrize("allocator", sorted(ALLOCATORS))
@settings(max_examples=45, deadline=None)
@given(
    requests=request_lists(40, 30),
    slots=st.integers(16, 160),
    page=st.sampled_from([1, 2, 4]),
    constant=st.sampled_from([0, 0, 3]),
    rule=st.sampled_from(sorted(RESERVATIONS)),
    seats=st.sampled_from([1, 2, 3, 8]),
    cost=COSTS,
)
def test_leaps_change_nothing(
    allocator: str,
    scheduler: str,
    requests: list[Request],
    slots: int,
    page: int,
    constant: int,
    rule: str,
    seats: int,
    cost: Crossing,
) -> None:
    outcomes = []
    for leaps in (True, False):
        memory = build(allocator, slots, page, constant, rule)
        engine = SCHEDULERS[scheduler](memory, max_num_seqs=seats, leaps=leaps)  # type: ignore[call-arg]
        log = replay(requests, engine, memory, cost, check=True)
        assert len(log.seen) + len(log.refused) == len(requests)
        assert not memory.held_slots
        outcomes.append((log.seen, log.refused, log.iterations, log.gaps, memory.evictions))
    assert outcomes[0] == outcomes[1]


@cache
def real_cost(model: str) -> Roofline:
    return Roofline(KVLayout(load_model(model)), load_gpu("h200"))


@pytest.mark.parametrize(
    "model", ["llama-3-8b", "mixtral-8x7b", "deepseek-v2-lite", "gpt-oss-20b", "gemma-3-27b"]
)
@settings(max_examples=40, deadline=None)
@given(
    requests=request_lists(300, 60),
    blocks=st.integers(2, 24),
    block=st.sampled_from([1, 3, 7, 16, 33, 64]),
    seats=st.sampled_from([1, 3, 8]),
    spare_budget=st.sampled_from([0, 1, 30, 300]),
    threshold=st.sampled_from([0, 0, 5, 40]),
    watermark=st.sampled_from([0.0, 0.0, 0.1, 0.4]),
    picks=st.lists(st.integers(0, 10**6), max_size=14),
)
def test_leaps_change_nothing_at_the_speed_of_real_models(
    model: str,
    requests: list[Request],
    blocks: int,
    block: int,
    seats: int,
    spare_budget: int,
    threshold: int,
    watermark: float,
    picks: list[int],
) -> None:
    """Blocks that no hash id divides, chunks side by side, arrivals when iterations end."""

    def serve(requests: list[Request], *, leaps: bool) -> tuple[Ends, int]:
        pool, log = Paged(1 + blocks, block_size=block), Ends()
        engine = Chunked(
            pool,
            max_num_seqs=seats,
            max_num_batched_tokens=seats + spare_budget,
            long_prefill_token_threshold=threshold,
            watermark=watermark,
            leaps=leaps,
        )
        replay(requests, engine, pool, real_cost(model), check=True, log=log)
        return log, pool.evictions

    ends = serve(requests, leaps=False)[0].ends
    if picks and ends:
        requests = on_boundaries(requests, ends, picks)
    (leapt, evicted), (stepped, evictions) = (serve(requests, leaps=it) for it in (True, False))
    assert (leapt.seen, leapt.refused, leapt.gaps) == (stepped.seen, stepped.refused, stepped.gaps)
    assert (leapt.iterations, evicted) == (stepped.iterations, evictions)


class Ends(Log):
    """Remembers when iterations ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[int] = []

    def leap(self, leap: Leap, allocator: Allocator) -> None:
        super().leap(leap, allocator)
        self.ends.append(leap.end)


class Insistent(Chunked):
    """Asks the head of the queue at every iteration, even when nothing can have changed."""

    _blocked = property(lambda self: False, lambda self, value: None)  # type: ignore[assignment]


@pytest.mark.parametrize("allocator", sorted(ALLOCATORS))
@settings(max_examples=100, deadline=None)
@given(
    requests=request_lists(40, 30),
    slots=st.integers(16, 160),
    page=st.sampled_from([1, 2, 4]),
    seats=st.sampled_from([2, 3, 8]),
    budget=st.integers(8, 40),
    threshold=st.sampled_from([0, 2, 5]),
    cost=COSTS,
)
def test_a_refused_request_is_asked_again_whenever_it_could_be_admitted(
    allocator: str,
    requests: list[Request],
    slots: int,
    page: int,
    seats: int,
    budget: int,
    threshold: int,
    cost: Crossing,
) -> None:
    outcomes = []
    for kind in (Chunked, Insistent):
        memory = build(allocator, slots, page)
        engine = kind(
            memory,
            max_num_seqs=seats,
            max_num_batched_tokens=budget,
            long_prefill_token_threshold=threshold,
        )
        log = replay(requests, engine, memory, cost, check=True)
        outcomes.append((log.seen, log.refused, log.iterations, memory.evictions))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
def test_a_sequence_that_outgrows_its_room_alone_goes_on(scheduler: str) -> None:
    """A reservation of another's making may be too small; the sequence then starts over and over."""

    class Short:
        def slots(self, sequence: Sequence) -> int:
            return sequence.num_tokens + 2

        def final(self, sequence: Sequence) -> int:
            return 30

    memory = Contiguous(64, Short())
    engine = SCHEDULERS[scheduler](memory, max_num_seqs=4)  # type: ignore[call-arg]
    cost = Crossing(base=10**9, per_context=0, per_token=0, per_pair=0)
    log = replay([Request(0, 0.0, 10, 20)], engine, memory, cost, check=True)
    assert log.seen[0].finished is not None
    assert log.seen[0].preemptions > 3


class Gaps(Log):
    """Notes how long every iteration beside a prompt took."""

    def __init__(self) -> None:
        super().__init__()
        self.beside: list[int] = []

    def leap(self, leap: Leap, allocator: Allocator) -> None:
        super().leap(leap, allocator)
        if leap.shape.decodes and leap.shape.prefills:
            self.beside += [gap for gap, count in leap.gaps() for _ in range(count)]


def test_gaps_between_tokens_beside_a_long_prompt_are_those_of_its_single_chunks() -> None:
    requests = [Request(0, 0.0, 8, 300), Request(1, 1e-5, 4000, 2)]
    cost = Crossing(base=10**6, per_context=0, per_token=0, per_pair=10**5)
    beside = []
    for leaps in (True, False):
        memory, seen = Paged(1000), Gaps()
        engine = Chunked(memory, max_num_seqs=4, max_num_batched_tokens=64, leaps=leaps)
        simulate(iter(requests), [Replica(0, engine, memory, cost)], RoundRobin(), seen)
        assert (seen.leaps < seen.iterations) is leaps
        beside.append(seen.beside)
    assert len(beside[0]) == len(beside[1]) == 64
    assert beside[0] == pytest.approx(beside[1], abs=2)
    assert beside[0][-2] > 10 * beside[0][0]
