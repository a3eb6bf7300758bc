"""Asynchronous scheduling: an iteration is decided while the one before it runs."""

from __future__ import annotations

from math import exp
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.compose import deploy
from kvsim.compose import simulate as simulate_scenario
from kvsim.core import PICOSECONDS, Request
from kvsim.errors import ConfigError
from kvsim.memory.hybrid import Hybrid
from kvsim.memory.paged import Paged
from kvsim.routing import RoundRobin
from kvsim.scenario import Scenario
from kvsim.scheduling.chunked import Chunked
from kvsim.simulation.cluster import simulate
from kvsim.simulation.host import HostCosts, Launches
from kvsim.simulation.pipelined import Pipelined
from tests.oracles.costs import Crossing
from tests.oracles.plain_loop import Limits
from tests.oracles.plain_pipeline import PlainPipeline
from tests.oracles.replay import Log
from tests.oracles.workloads import request_lists
from tests.test_exact_replay import COSTS, fast, fitting, limits, on_boundaries, plain

STEP = PICOSECONDS // 100
COST = Crossing(base=STEP, per_context=0, per_token=0, per_pair=0)


def serve(
    requests: list[Request], limits: Limits, cost: Crossing, host: HostCosts, *, leaps: bool
) -> tuple[Paged, Log]:
    pool = Paged(limits.num_blocks, block_size=limits.block_size)
    return pool, serve_from(pool, requests, limits, cost, host, leaps=leaps)


def serve_from(
    pool: Paged | Hybrid,
    requests: list[Request],
    limits: Limits,
    cost: Crossing,
    host: HostCosts,
    *,
    leaps: bool,
) -> Log:
    scheduler = Chunked(
        pool,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        long_prefill_token_threshold=limits.long_prefill_token_threshold,
        leaps=leaps,
    )
    log = Log()
    engine = Pipelined(0, scheduler, pool, cost, host=host, check=True)
    simulate(requests, [engine], RoundRobin(), log)
    return log


ROOMY = Limits(num_blocks=200, block_size=4, max_num_seqs=8, max_num_batched_tokens=64)


def seen(requests: list[Request], limits: Limits = ROOMY, **host: Any) -> dict[int, list[float]]:
    """When each request was admitted, got its first token and finished, in steps."""
    _, log = serve(requests, limits, COST, HostCosts(**host), leaps=True)
    return {
        s.row: [(t or 0) / STEP for t in (s.scheduled, s.first_token, s.finished)] for s in log.seen
    }


def test_a_request_waits_for_the_running_iteration_and_for_the_one_already_scheduled() -> None:
    # It arrives in the middle of iteration 10; iteration 11 is scheduled by then, so it joins 12.
    times = seen([Request(0, 0.0, 4, 100), Request(1, 0.105, 4, 2)])
    assert times[1] == [11, 13, 14]  # decided when 11 begins, computed by 12, seen when 12 ends


def test_an_idle_engine_schedules_two_iterations_back_to_back() -> None:
    times = seen([Request(0, 0.0, 4, 3), Request(1, 0.0, 4, 3)])
    assert times[0] == times[1] == [0, 1, 3]


def test_a_seat_comes_back_one_iteration_after_the_last_token_was_scheduled() -> None:
    one_seat = Limits(num_blocks=200, block_size=4, max_num_seqs=1, max_num_batched_tokens=64)
    times = seen([Request(0, 0.0, 4, 3), Request(1, 0.0, 4, 1)], one_seat)
    assert times[0][2] == 3
    assert times[1][0] == 3


def test_the_front_end_and_waking_delay_the_first_iteration() -> None:
    times = seen([Request(0, 1.0, 10, 1)], front_end=0.02, front_end_per_token=0.001, wake=0.01)
    assert times[0] == [104, 105, 105]


def test_tokens_are_seen_when_the_batch_after_them_is_launched() -> None:
    # Row 1's prompt is decided at 9 and takes 3.5 steps to launch, so that iteration 9, over at 10,
    # is seen at 12.5. By then the GPU has done the prompt's kernels as they came.
    launches = Launches(kernels=0.035, largest=3)
    times = seen([Request(0, 0.0, 2, 12), Request(1, 0.085, 4, 2)], launches=launches)
    assert times[1] == pytest.approx([9, 12.5, 13.5])
    assert times[0][2] == pytest.approx(13.5)


def test_a_launch_that_takes_longer_than_the_iteration_sets_the_pace() -> None:
    launches = Launches(kernels=0.02, largest=10)
    times = seen([Request(0, 0.0, 640, 1)], launches=launches)  # ten chunks of 64
    assert times[0][1] == pytest.approx(20)


def test_a_gpu_that_has_rested_runs_large_batches_faster_until_it_is_warm() -> None:
    rested: dict[str, Any] = {"launches": Launches(largest=10), "boost": 0.5, "boosted": 0.005}
    times = seen([Request(0, 0.0, 192, 1)], **rested)
    saved = 0.25 * (1 - exp(-4))  # of two chunks of 64 in steps of 10 ms; then it is warm
    assert times[0][1] == pytest.approx(3 - saved, abs=1e-3)
    again = seen([Request(0, 0.0, 64, 1), Request(1, 0.5, 64, 1)], **rested)
    assert again[1][1] - 50 == pytest.approx(again[0][1], abs=1e-3)


HOSTS = st.builds(
    HostCosts,
    longest_burst=st.just(0.0),
    front_end_per_token=st.just(0.0),
    front_end=st.just(0.0),
    to_client=st.sampled_from([0.0, 0.001]),
    wake=st.sampled_from([0.0, 0.004]),
    idle_launch=st.sampled_from([0.0, 0.025]),
    boost=st.sampled_from([0.0, 0.1]),
    boosted=st.just(0.02),
    launches=st.builds(
        Launches,
        graph=st.sampled_from([0.0, 0.002]),
        pieces=st.sampled_from([0.0, 0.008]),
        kernels=st.sampled_from([0.0, 0.015, 0.04]),
        largest=st.integers(1, 40),
        latent=st.sampled_from([0.0, 0.01]),
    ),
)


@settings(max_examples=120, deadline=None)
@given(request_lists(40, 30), limits(), COSTS, HOSTS, st.lists(st.integers(0, 10**6), max_size=14))
def test_leaps_change_nothing_with_two_batches_in_flight(
    requests: list[Request], limits: Limits, cost: Crossing, host: HostCosts, picks: list[int]
) -> None:
    requests = fitting(requests, limits)
    if requests and picks:
        requests = on_boundaries(requests, plain(requests, limits, cost)[0].boundaries, picks)
    outcomes = []
    with pytest.MonkeyPatch.context() as patch:  # sizes at which launches change, for small prompts
        patch.setattr("kvsim.simulation.latent.FEW", 2)
        patch.setattr("kvsim.simulation.latent.WORKSPACE", 64)
        for leaps in (True, False):
            pool, log = serve(requests, limits, cost, host, leaps=leaps)
            assert len(log.seen) == len(requests)
            assert not pool.held_slots
            outcomes.append((log.seen, log.iterations, pool.evictions))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("pool", [Paged, Hybrid])
@settings(max_examples=300, deadline=None)
@given(request_lists(40, 50), limits([1, 2, 4, 5, 16]), st.booleans(), st.booleans())
def test_every_request_is_served_preempted_and_hit_as_by_the_plain_pipeline(
    pool: type[Paged | Hybrid], requests: list[Request], limits: Limits, leaps: bool, caching: bool
) -> None:
    requests = fitting(requests, limits)
    plain = PlainPipeline(requests, limits, STEP, prefix_caching=caching)
    blocks = pool(limits.num_blocks, block_size=limits.block_size, prefix_caching=caching)
    expected = {
        (x.request.row, x.first_token, x.finished, x.cached, x.preemptions) for x in plain.run()
    }
    log = serve_from(blocks, requests, limits, COST, HostCosts(), leaps=leaps)
    assert expected == {
        (s.request.row, s.first_token, s.finished, s.answer_hit, s.preemptions)
        for s in log.sequences
    }
    assert blocks.evictions == plain.blocks.evictions


def test_the_token_in_flight_is_not_hashed_when_its_sequence_is_preempted() -> None:
    # Both have computed 10 of their tokens when one block is left, and the first ends one step later.
    requests, few = [Request(0, 0.0, 4, 8), Request(1, 0.0, 4, 10)], Limits(22, 1, 2, 8)
    _, ahead = serve(requests, few, COST, HostCosts(), leaps=True)
    _, waiting = fast(requests, few, COST, leaps=True)
    lost = [[(s.preemptions, s.recomputed_tokens) for s in x.sequences] for x in (ahead, waiting)]
    assert lost == [[(0, 0), (1, 1)], [(0, 0), (1, 0)]]


def test_a_step_that_only_preempts_runs_nothing_until_the_batch_in_flight_has_ended() -> None:
    # The first ends with its prompt; the second fits beside it, but for the token that follows, and
    # could begin again at once, as the first has its prompt cached. The third needs a seat.
    few = Limits(34, 1, 2, 33)
    requests = [Request(0, 0.0, 32, 1, [1] * 32, 1), Request(1, 0.0, 1, 2, [1], 1)]
    requests.append(Request(2, 0.0, 1, 1))
    _, log = serve(requests, few, COST, HostCosts(), leaps=True)
    assert [s.preemptions for s in log.sequences] == [0, 1, 0]
    times = seen(requests, few)
    assert [times[row][2] for row in range(3)] == [1, 2, 2]


@pytest.mark.parametrize("sample", ["chat", "agent", "rag"])
def test_a_named_engine_serves_the_samples_alike_with_and_without_leaps(
    root: Path, sample: str
) -> None:
    workload = {"limit": 150}
    scenario = Scenario(
        engine="vllm-0.23", replicas=2, num_gpu_blocks_override=4000, workload=workload
    )
    trace = root / "traces" / f"{sample}.jsonl.gz"
    runs = [simulate_scenario(scenario, trace, leaps=leaps, check=True) for leaps in (True, False)]
    served = [run.summary for run in runs]
    assert served[0]["completed"] + served[0]["num_rejected"] == 150
    assert served[0]["cost_model"] == "measured (h200), vllm 0.23"
    for metric in ("mean_ttft_ms", "p99_tpot_ms", "num_iterations", "prefix_cache_hits"):
        assert served[0][metric] == served[1][metric]
    for metric, near in (("p50_itl_ms", 0.005), ("p99_itl_ms", 0.005), ("mean_itl_ms", 1e-6)):
        assert served[0][metric] == pytest.approx(served[1][metric], rel=near)


def test_an_engine_that_schedules_ahead_needs_a_scheduler_that_can() -> None:
    with pytest.raises(ConfigError, match="accepted: chunked, continuous"):
        deploy(Scenario(engine="vllm", scheduler="static"))


def test_calls_that_never_pause_do_not_hold_each_other_back_for_ever() -> None:
    requests = [Request(row, row * 0.001, 4, 1) for row in range(100)]
    times = seen(requests, front_end=0.002, longest_burst=0.01)
    assert times[0][0] == 1.0  # handed over with the ten that came within 10 ms
    assert times[99][0] < 20
