"""A host tier behind the prefix cache: what the GPU gave up is loaded instead of computed."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.compose import simulate as replay
from kvsim.core import PICOSECONDS, Request
from kvsim.errors import ConfigError
from kvsim.memory.extents import Content
from kvsim.memory.offloaded import HostTier, Offloaded
from kvsim.protocols import Allocator
from kvsim.routing import RoundRobin
from kvsim.scenario import Scenario
from kvsim.scheduling.offloading import Offloading
from kvsim.simulation.cluster import audited
from kvsim.simulation.host import HostCosts
from kvsim.simulation.loading import Loading
from kvsim.validation import RunReport, validate
from tests.oracles.costs import Crossing
from tests.oracles.plain_loop import Limits
from tests.oracles.replay import Log
from tests.oracles.workloads import request_lists
from tests.test_exact_replay import COSTS, fitting, limits

STEP = PICOSECONDS // 100
COST = Crossing(base=STEP, per_context=0, per_token=0, per_pair=0)
SMALL = Limits(num_blocks=13, block_size=4, max_num_seqs=8, max_num_batched_tokens=16)


class Notes(Log):
    """Where an idle engine may hold what it loads."""

    def idle(self, replica: int, allocator: Allocator) -> None:
        """Nothing to note."""


def serve(
    requests: list[Request],
    limits: Limits,
    cost: Crossing,
    *,
    host_blocks: int,
    load: float = 0.0,
    leaps: bool = True,
) -> Log:
    pool = Offloaded(limits.num_blocks, host_blocks=host_blocks, block_size=limits.block_size)
    scheduler = Offloading(
        pool,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        leaps=leaps,
    )
    engine = Loading(
        0,
        scheduler,
        pool,
        cost,
        host=HostCosts(),
        load=lambda tokens: round(load * STEP * tokens),
        check=True,
    )
    log = Notes()
    audited(requests, [engine], RoundRobin(), log)
    return log


def cached(log: Log) -> dict[int, int]:
    return {seen.row: seen.cached for seen in log.seen}


def prompt(row: int, arrival: float, *ids: int) -> Request:
    return Request(row, arrival, 4 * len(ids), 2, list(ids), 4)


# Three prompts of eight blocks do not fit a pool of twelve, so the first is gone when it returns.
RETURNING = [
    prompt(0, 0.0, *range(8)),
    prompt(1, 1.0, *range(10, 18)),
    prompt(2, 2.0, *range(20, 28)),
    prompt(3, 3.0, *range(8)),
]


def test_what_the_gpu_gave_up_is_loaded_from_the_host() -> None:
    assert cached(serve(RETURNING, SMALL, COST, host_blocks=0))[3] == 0
    assert cached(serve(RETURNING, SMALL, COST, host_blocks=100))[3] == 28  # not the last block


def test_a_host_that_is_too_small_has_dropped_what_was_used_least_recently() -> None:
    assert cached(serve(RETURNING, SMALL, COST, host_blocks=16))[3] == 0


def first_tokens(log: Log) -> dict[int, int]:
    return {seen.row: seen.first_token or 0 for seen in log.seen}


def test_loading_takes_its_time() -> None:
    at_once = first_tokens(serve(RETURNING, SMALL, COST, host_blocks=100))
    later = first_tokens(serve(RETURNING, SMALL, COST, host_blocks=100, load=0.5))
    assert later[3] - at_once[3] == pytest.approx(0.5 * 28 * STEP)


def test_others_run_while_a_request_is_loaded() -> None:
    requests = [*RETURNING, prompt(4, 3.0001, 30)]
    log = serve(requests, SMALL, COST, host_blocks=100, load=1.0)
    firsts = first_tokens(log)
    assert firsts[4] < firsts[3]


def test_a_load_leaves_prompts_under_way_the_room_that_they_need() -> None:
    gone = [
        prompt(0, 0.0, *range(8)),
        prompt(1, 1.0, *range(10, 14)),
        prompt(2, 2.0, *range(20, 31)),
    ]
    back = [prompt(3, 3.0, *range(8), 40, 41, 42), prompt(4, 3.001, *range(10, 14))]
    log = serve([*gone, *back], SMALL, COST, host_blocks=100, load=1.0)
    alone = serve([*gone, back[0]], SMALL, COST, host_blocks=100, load=1.0)
    assert (cached(log)[3], cached(log)[4]) == (32, 12)
    assert first_tokens(log)[3] == first_tokens(alone)[3]


def test_the_host_drops_what_was_looked_up_least_recently() -> None:
    host = HostTier(10)
    first, second, third = (Content(array("q", ids), 4, 4, 4, None) for ids in CONTENTS)
    host.store(first, 4)
    host.store(second, 4)
    assert host.hit(first) == 4
    host.store(third, 4)
    assert [host.hit(one) for one in (first, second, third)] == [4, 2, 4]


CONTENTS = [range(4), range(10, 14), range(20, 24)]


@settings(max_examples=100, deadline=None)
@given(
    request_lists(40, 30),
    limits(),
    COSTS,
    st.sampled_from([0, 5, 60]),
    st.sampled_from([0.0, 0.01, 0.7]),
)
def test_leaps_change_nothing_and_the_books_balance(
    requests: list[Request], limits: Limits, cost: Crossing, host_blocks: int, load: float
) -> None:
    requests = fitting(requests, limits)
    outcomes = []
    for leaps in (True, False):
        log = serve(requests, limits, cost, host_blocks=host_blocks, load=load, leaps=leaps)
        assert len(log.seen) == len(requests)
        outcomes.append((log.seen, log.iterations))
    assert outcomes[0] == outcomes[1]


def test_a_request_that_is_sent_back_with_a_token_unseen_is_admitted_when_it_is_seen() -> None:
    tight = Limits(num_blocks=6, block_size=2, max_num_seqs=1, max_num_batched_tokens=1)
    shapes = [(8, 1, [2, 1]), (1, 1, None), (1, 1, None), (10, 1, [2, 1]), (1, 3, None)]
    requests = [
        Request(row, 0.0, new, answer, ids, 4 if ids else 0)
        for row, (new, answer, ids) in enumerate(shapes)
    ]
    step = Crossing(base=1, per_context=0, per_token=0, per_pair=0)
    for leaps in (True, False):
        log = serve(requests, tight, step, host_blocks=5, leaps=leaps)
        assert len(log.seen) == len(requests)


def test_a_scenario_says_how_much_the_host_keeps(root: Path) -> None:
    trace = root / "traces/agent.jsonl.gz"
    workload = {"limit": 100}
    bare = Scenario(engine="vllm", num_gpu_blocks_override=3000, workload=workload)
    tiered = bare.changed(kv_offloading_size=50.0)
    hits = [replay(one, trace).summary["prefix_cache_hits"] for one in (bare, tiered)]
    assert hits[1] > 1.5 * hits[0]
    with pytest.raises(ConfigError, match="kv_offloading_size is 4, which needs --engine vllm"):
        replay(Scenario(kv_offloading_size=4.0), trace)
    with pytest.raises(ConfigError, match=r"allocator hybrid has no host.*; accepted: paged"):
        replay(tiered.changed(allocator="hybrid"), trace)


@pytest.mark.parametrize(
    ("setting", "value", "usual"),
    [
        ("enable_prefix_caching", False, "true"),
        ("eviction", "fifo", "lru"),
        ("victim", "largest", "last"),
        ("preemption", "swap", "recompute"),
    ],
)
def test_a_setting_that_a_host_tier_would_lose_is_refused(
    root: Path, setting: str, value: object, usual: str
) -> None:
    tiered = Scenario(engine="vllm", kv_offloading_size=4.0).changed(**{setting: value})
    with pytest.raises(ConfigError, match=f"which {setting} = .* not go with; accepted: {usual}$"):
        replay(tiered, root / "traces/agent.jsonl.gz")


def test_a_measured_run_with_a_host_tier_is_predicted(shared: Path) -> None:
    name = "l8b_kv12000_offload48g__agent1.json.gz"
    found = validate(shared / "reference/vllm_h200" / name)
    assert isinstance(found, RunReport)
    assert all(abs(metric.rel_error or 0) < 0.06 for metric in found.metrics.values())
    assert abs(found.metrics["cached_tokens"].rel_error or 0) < 0.005
    assert found.metrics["preemptions"].predicted == 0
    assert found.equal_rows > 1000
