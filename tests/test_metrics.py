"""The numbers of a summary: definitions, percentiles, goodput, memory, backlog and verdict."""

from __future__ import annotations

import gzip
import heapq
import json
import math
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from kvsim.analysis.distribution import Distribution
from kvsim.analysis.overload import Backlog, backlog
from kvsim.analysis.verdict import Facts, verdict
from kvsim.compose import simulate
from kvsim.scenario import Scenario, Workload
from kvsim.simulation.recorder import Recorder
from kvsim.tables import EngineRecord, Limits, ReplicaTotals
from tests.recorded import SLOTS, Kept, record, served

PERCENTILES = (0, 12.5, 50, 90, 99, 100)
seconds = st.floats(1e-6, 1e6)
weighted = st.lists(st.tuples(seconds, st.integers(1, 50)), min_size=1, max_size=60)


def distribution(pairs: list[tuple[float, int]], limit: int = 1 << 20) -> Distribution:
    made = Distribution(limit)
    for value, count in pairs:
        made.add(np.array([value]), np.array([count]))
    return made


@given(weighted)
def test_statistics_equal_numpys_of_every_value_written_out(pairs: list[tuple[float, int]]) -> None:
    values = np.repeat([value for value, _ in pairs], [count for _, count in pairs])
    found = distribution(pairs).statistics(PERCENTILES)
    assert found is not None
    assert found.percentiles == pytest.approx(np.percentile(values, PERCENTILES).tolist())
    assert found.mean == pytest.approx(values.mean())
    assert found.std == pytest.approx(values.std(), rel=1e-6, abs=1e-6 * found.mean)


@given(st.lists(seconds, min_size=1, max_size=60))
def test_single_values_need_no_counts(values: list[float]) -> None:
    plain = Distribution()
    plain.add(np.array(values))
    found = plain.statistics(PERCENTILES)
    assert found is not None
    assert found.percentiles == pytest.approx(np.percentile(values, PERCENTILES).tolist())


@given(weighted, st.randoms(use_true_random=False))
def test_a_large_distribution_is_close_and_forgets_the_order(pairs, random) -> None:  # type: ignore[no-untyped-def]
    exact = distribution(pairs).statistics(PERCENTILES)
    shuffled = random.sample(pairs, len(pairs))
    folded = [distribution(order, limit=5) for order in (pairs, shuffled)]
    assert exact is not None
    assert folded[0].exact == (len(pairs) <= 5)
    if folded[0].exact:
        return
    one, other = (made.statistics(PERCENTILES) for made in folded)
    assert one == other
    assert one is not None
    assert one.percentiles == pytest.approx(exact.percentiles, rel=5e-4)
    assert one.mean == pytest.approx(exact.mean, rel=5e-4)


def test_the_latencies_of_a_request_are_those_of_the_definitions() -> None:
    summary = record(
        served(0, arrival=10.0, queue=1.0, prefill=0.5, gap=0.1, output=11),
        served(1, arrival=11.0, queue=2.0, prefill=0.5, gap=0.3, output=6),
    ).summary
    assert summary["mean_queue_time_ms"] == pytest.approx(1500)
    assert summary["mean_ttft_ms"] == pytest.approx((1500 + 2500) / 2)
    assert summary["mean_tpot_ms"] == pytest.approx((100 + 300) / 2)
    assert summary["mean_e2el_ms"] == pytest.approx((2500 + 4000) / 2)
    assert summary["std_e2el_ms"] == pytest.approx(750)
    assert summary["median_e2el_ms"] == summary["p50_e2el_ms"] == pytest.approx(3250)
    assert summary["mean_normalized_latency_ms"] == pytest.approx((2500 / 11 + 4000 / 6) / 2)


def test_rates_are_per_second_from_first_arrival_to_last_completion() -> None:
    summary = record(
        served(0, arrival=10.0, prefill=0.5, gap=0.1, output=11, cached=25),
        served(1, arrival=12.5, prefill=0.5, gap=0.1, output=21),
    ).summary
    assert summary["duration"] == pytest.approx(5.0)
    assert summary["completed"] == 2
    assert summary["request_throughput"] == pytest.approx(2 / 5)
    assert summary["output_throughput"] == pytest.approx(32 / 5)
    assert summary["total_token_throughput"] == pytest.approx(232 / 5)
    assert (summary["prefix_cache_queries"], summary["prefix_cache_hits"]) == (200, 25)
    assert summary["prefix_cache_hit_rate"] == 0.125


def test_goodput_counts_the_requests_that_meet_every_objective() -> None:
    good, late = served(0, 0.0, gap=0.1), served(1, 1.0, queue=9.0, gap=0.1)
    slow, single = served(2, 2.0, gap=0.9), served(3, 3.0, output=1)
    summary = record(good, late, slow, single, slos={"ttft": 1.0, "tpot": 0.2}).summary
    assert summary["request_goodput"] == pytest.approx(2 / float(str(summary["duration"])))
    assert record(good).summary["request_goodput"] is None


def test_an_answer_of_one_token_has_no_time_per_output_token() -> None:
    summary = record(served(0, 0.0, output=1)).summary
    assert summary["mean_tpot_ms"] is None
    assert summary["mean_ttft_ms"] == pytest.approx(500)


def test_a_run_that_serves_nobody_has_nulls_and_no_nans() -> None:
    summary = record(rejected=3).summary
    assert summary["num_rejected"] == 3
    assert summary["completed"] == 0
    assert summary["mean_ttft_ms"] is None
    assert summary["request_throughput"] is None
    json.dumps(summary, allow_nan=False)


def test_the_memory_waterfall_sums_to_the_pool_and_agrees_with_the_usage() -> None:
    summary = record(*(served(i, 5.0 * i) for i in range(50)), replicas=2).summary
    memory = summary["kv_memory"]
    assert isinstance(memory, dict)
    assert sum(memory.values()) == pytest.approx(2 * SLOTS)
    held = memory["used"] + memory["internal_fragmentation"] + memory["reserved"]
    assert held / (2 * SLOTS) == pytest.approx(summary["mean_kv_cache_usage"])
    assert summary["peak_kv_cache_usage"] == 0.5
    assert summary["kv_blocks_total"] == 2 * SLOTS / 10


@pytest.mark.parametrize("scheduler", ["chunked", "continuous"])
def test_the_gaps_of_all_tokens_sum_to_the_time_after_first_tokens(
    root: Path, scheduler: str
) -> None:
    scenario = Scenario(scheduler=scheduler, num_gpu_blocks_override=900, max_num_seqs=32)
    result = simulate(scenario, root / "traces" / "chat.jsonl.gz")
    table = result.requests.served()
    after_first = float((table.finished - table.first_token).sum())
    gaps = float((table.output_tokens - 1).sum())
    assert result.summary["mean_itl_ms"] == pytest.approx(after_first / gaps * 1e3, rel=1e-9)


def test_preempted_requests_still_account_for_all_their_time(root: Path) -> None:
    scenario = Scenario(num_gpu_blocks_override=300, max_num_batched_tokens=2048)
    result = simulate(scenario, root / "traces" / "chat.jsonl.gz")
    table = result.requests.served()
    mean = (table.finished - table.first_token).sum() / (table.output_tokens - 1).sum()
    assert result.summary["num_preemptions"]
    assert result.summary["mean_itl_ms"] == pytest.approx(mean * 1e3, rel=1e-9)


# Backlog.

Floats = NDArray[np.float64]


def queue(gaps: Floats, servers: int = 1) -> Backlog | None:
    """The backlog of a queue that serves everybody for one second."""
    arrival = np.cumsum(gaps)
    free = [0.0] * servers
    delay = np.empty(len(gaps))
    for i, at in enumerate(arrival):
        start = max(heapq.heappop(free), at)
        heapq.heappush(free, start + 1.0)
        delay[i] = start - at
    return backlog(arrival, delay, np.ones(len(gaps)))


def poisson(load: float, requests: int, random: Generator, servers: int = 1) -> Floats:
    return random.exponential(1 / (load * servers), requests)


def bursts(random: Generator, requests: int) -> Floats:
    """Bursts at twice the capacity in a quarter of the time, a load of 0.7 in the long run."""
    gaps: list[float] = []
    while len(gaps) < requests:
        gaps += random.exponential(1 / 2.0, 60).tolist()
        gaps += random.exponential(1 / 0.27, 24).tolist()
    return np.array(gaps[:requests])


@pytest.mark.parametrize("servers", [1, 16])
@pytest.mark.parametrize(("load", "overloaded"), [(0.7, 0), (0.95, 0), (1.2, 1)])
def test_only_a_load_above_the_capacity_is_overload(
    load: float, overloaded: int, servers: int
) -> None:
    found = [queue(poisson(load, 2_000, default_rng(seed), servers), servers) for seed in range(20)]
    flagged = sum(one is not None and one.overloaded for one in found)
    assert flagged == 20 * overloaded


def test_a_healthy_run_with_bursts_is_not_overloaded() -> None:
    found = [queue(bursts(default_rng(seed), 2_000)) for seed in range(20)]
    assert not any(one is None or one.overloaded for one in found)
    assert max(one.last for one in found if one is not None) > 3.0


def test_the_growth_of_the_delay_is_that_of_queueing_theory() -> None:
    found = queue(np.full(1_000, 1 / 1.5))
    assert found is not None
    assert found.growth == pytest.approx(1.5 - 1, rel=0.01)


def test_neither_a_few_requests_nor_a_batch_at_one_instant_has_a_trend() -> None:
    assert queue(np.full(20, 0.1)) is None
    assert queue(np.zeros(1_000)) is None


# Verdict.


def engine(kv: float = 0, seats: float = 0, budget: float = 0, **limits: int) -> EngineRecord:
    totals = ReplicaTotals(100, 1000, 10.0, 0.0, 0, kv, seats, budget)
    samples = Recorder(1, SLOTS, Kept()).close().samples
    return EngineRecord(SLOTS, Limits(**limits), (totals,), samples)


def facts(preemptions: int = 0, trend: Backlog | None = None) -> Facts:
    return Facts(10.0, 1_000, preemptions, 0.62, 0.97, 0.99, trend)


@pytest.mark.parametrize(
    ("blocked", "preemptions", "name"),
    [
        ({}, 0, "none"),
        ({"kv": 0.9}, 0, "none"),
        ({"kv": 4.0, "seats": 1.0}, 0, "KV-bound"),
        ({"seats": 4.0, "budget": 1.0}, 0, "queue-bound"),
        ({"budget": 4.0, "kv": 1.0}, 0, "compute-bound"),
        ({"budget": 4.0}, 10, "compute-bound"),
        ({"budget": 4.0}, 100, "KV-bound"),
    ],
)
def test_the_verdict_names_what_requests_waited_for(
    blocked: dict[str, float], preemptions: int, name: str
) -> None:
    found = verdict(engine(**blocked), facts(preemptions))  # type: ignore[arg-type]
    assert found.name == name


def test_the_evidence_holds_the_numbers_behind_the_verdict() -> None:
    trend = Backlog(0.17, 1.0, 61.0, True)
    found = verdict(engine(kv=4.0, seats=1.0, max_num_seqs=256), facts(12, trend))
    for number in ("50%", "40% no room", "10% 256 seats", "62% mean", "97% peak", "12 preemptions"):
        assert number in found.evidence
    assert "overloaded: queueing delay grew by 0.17 s per second" in found.evidence


def test_shared_data_is_judged_as_its_load_deserves(shared: Path) -> None:
    path = shared / "traces" / "mooncake" / "conversation_trace.jsonl.gz"
    first = Workload(limit=1_500)
    served_well = simulate(Scenario(replicas=8, workload=first), path).summary
    overrun = simulate(Scenario(replicas=1, workload=first), path).summary
    assert served_well["overloaded"] is False
    assert overrun["overloaded"] is True
    assert overrun["verdict"] == "compute-bound"
    with gzip.open(path) as lines:
        tokens = [json.loads(line)["input_length"] for line in islice(lines, 1_500)]
    assert overrun["total_input_tokens"] == sum(tokens)
    assert not math.isnan(float(str(overrun["mean_ttft_ms"])))
