"""Who loses its room when memory runs out, and what becomes of its KV."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import get_args

import pytest

from kvsim import Scenario, simulate
from kvsim.catalog.hardware import load_gpu
from kvsim.catalog.models import load_model
from kvsim.core import Request, Sequence
from kvsim.costs.hostlink import Copies, HostLink
from kvsim.costs.roofline import Roofline
from kvsim.errors import ConfigError
from kvsim.layout import KVLayout
from kvsim.memory.paged import Paged
from kvsim.protocols import Preemption, Standing
from kvsim.scheduling.chunked import Chunked
from kvsim.scheduling.preemption import PREEMPTIONS
from kvsim.scheduling.preemption.auto import Auto
from kvsim.scheduling.preemption.recompute import Recompute
from kvsim.scheduling.preemption.swap import Swap
from kvsim.scheduling.victims import VICTIMS
from tests.oracles.costs import Crossing
from tests.oracles.moves import Link
from tests.oracles.replay import Log, replay

COST = Crossing(base=10**9, per_context=10**5, per_token=10**7, per_pair=10**4)
CHAT = Path(__file__).parents[1] / "traces" / "chat.jsonl.gz"
TIGHT = [Request(row, 0.001 * row, 20, 40) for row in range(6)]
"""Six sequences of 60 tokens; the pools below hold two of them whole."""


def served(policy: Preemption, requests: list[Request] = TIGHT, *, slots: int = 120) -> Log:
    memory = Paged(1 + slots // 4, block_size=4, prefix_caching=False)
    return replay(requests, Chunked(memory, policy), memory, COST, check=True)


def recomputed(log: Log) -> int:
    return sum(sequence.recomputed_tokens for sequence in log.sequences)


def preemptions(log: Log) -> int:
    return sum(seen.preemptions for seen in log.seen)


def test_swapped_sequences_recompute_nothing() -> None:
    swap = Swap(Link(), host_gib=1000)
    log = served(swap)
    assert preemptions(log) > 0
    assert recomputed(log) == 0
    assert swap.moved >= 2 * 20 * preemptions(log)


def test_recomputed_sequences_move_nothing() -> None:
    policy = Recompute()
    assert recomputed(served(policy)) > 0
    assert policy.moved == 0


def test_a_sequence_that_the_host_cannot_hold_whole_is_recomputed() -> None:
    swap = Swap(Link(), host_gib=19)
    assert recomputed(served(swap)) > 0
    assert swap.moved == 0


def test_copies_take_time_and_the_engine_waits_for_them() -> None:
    quick, slow = (served(Swap(Link(per_token=cost), host_gib=1000)) for cost in (0, 10**9))
    assert preemptions(quick) > 0
    assert max(s.finished or 0 for s in slow.seen) > max(s.finished or 0 for s in quick.seen)


def test_auto_swaps_where_that_is_cheaper_and_recomputes_where_not() -> None:
    cheap, dear = (Auto(Link(per_token=cost, per_pair=10), host_gib=1000) for cost in (1, 10**6))
    assert recomputed(served(cheap)) == 0
    assert recomputed(served(dear)) > 0
    assert dear.moved == 0


def test_nobody_new_is_admitted_before_those_that_were_swapped_out_unless_it_may_overtake() -> None:
    """The first two run out of room; a small request then waits behind the one that was swapped out."""
    requests = [Request(0, 0.0, 40, 60), Request(1, 0.0, 40, 60), Request(2, 0.03, 4, 4)]

    def scheduled(admission: str) -> int:
        swap = Swap(Link(), host_gib=1000, admission=admission)  # type: ignore[arg-type]
        log = served(swap, requests, slots=120)
        assert preemptions(log) > 0
        return next(seen.scheduled or 0 for seen in log.seen if seen.row == 2)

    small_pool = [scheduled(admission) for admission in ("hold", "overtake")]
    assert small_pool[0] >= small_pool[1]


def test_overtaking_lets_small_requests_use_room_that_is_too_small_for_others() -> None:
    requests = [Request(0, 0.0, 40, 60), Request(1, 0.0, 40, 60), Request(2, 0.0245, 4, 4)]
    ends = {}
    for admission in ("hold", "overtake"):
        swap = Swap(Link(), host_gib=1000, admission=admission)  # type: ignore[arg-type]
        log = served(swap, requests, slots=120)
        ends[admission] = next(seen.finished or 0 for seen in log.seen if seen.row == 2)
    assert ends["overtake"] < ends["hold"]


def standing(order: int, *, tokens: int, generated: int, priority: int = 0) -> Standing:
    sequence = Sequence(Request(order, 0.0, tokens - generated, 99, priority=priority), 0)
    sequence.order = order
    return Standing(sequence, tokens, generated)


@pytest.mark.parametrize(
    ("rule", "order"),
    [("last", 4), ("lowest-priority", 2), ("largest", 1), ("fewest-generated", 3)],
)
def test_each_rule_takes_the_one_it_is_named_after(rule: str, order: int) -> None:
    standings = [
        standing(1, tokens=90, generated=9),
        standing(2, tokens=50, generated=5, priority=7),
        standing(3, tokens=30, generated=1),
        standing(4, tokens=20, generated=8),
    ]
    ranked = max(standings, key=lambda one: (VICTIMS[rule]().rank(one), one.sequence.order))
    assert ranked.sequence.order == order


@pytest.mark.parametrize("rule", sorted(VICTIMS))
def test_every_rule_serves_everybody(rule: str) -> None:
    memory = Paged(1 + 30, block_size=4)
    requests = [request._replace(priority=request.row % 3) for request in TIGHT]
    log = replay(requests, Chunked(memory, victim=VICTIMS[rule]()), memory, COST, check=True)
    assert len(log.seen) == len(TIGHT)
    assert preemptions(log) > 0


def test_important_requests_are_not_preempted_for_others() -> None:
    memory = Paged(1 + 30, block_size=4)
    requests = [request._replace(priority=5 - request.row) for request in TIGHT[:3]]
    victim = VICTIMS["lowest-priority"]()
    log = replay(requests, Chunked(memory, victim=victim), memory, COST, check=True)
    by_row = {seen.row: seen.preemptions for seen in log.seen}
    assert by_row[0] > 0
    assert by_row[2] == 0


# The link between a GPU and its host.


def link(gpu: str = "h200", *, block: int = 16, model: str = "opt-13b") -> HostLink:
    layout = KVLayout(load_model(model))
    return HostLink(layout, load_gpu(gpu), Roofline(layout, load_gpu(gpu)), block_size=block)


def test_small_blocks_are_slow_to_move_and_gathered_ones_are_not() -> None:
    times = [link(block=block).out(1024) for block in (1, 4, 16, 64, 256)]
    assert all(one > 1.2 * other for one, other in pairwise(times[:4]))
    assert link(block=1).out(1024, "gathered") == link(block=256).out(1024, "gathered")


@pytest.mark.parametrize("gpu", ["a100", "h200", "b300"])
@pytest.mark.parametrize("copies", get_args(Copies))
def test_more_tokens_never_take_less_time_to_move_over_a_slower_or_a_faster_link(
    gpu: str, copies: Copies
) -> None:
    its = link(gpu, block=1, model="llama-3-70b")
    for way in (its.out, its.back):
        times = [way(tokens, copies) for tokens in (1, 2, 5, 15, 40, 300, 5_000, 10**6)]
        assert times == sorted(times)
        assert times[-1] >= 10**6 * 327_680 / load_gpu(gpu).pcie_bandwidth * 1e12


def test_large_copies_run_at_what_the_link_sustains() -> None:
    """5 GiB of KV of LLaMA-65B in 2,048 tokens; 55 GB/s were measured on the H200."""
    seconds = link(model="llama-65b").back(2048, "gathered") / 1e12
    assert 2048 * 2_621_440 / seconds == pytest.approx(55e9, rel=0.03)


def test_half_the_link_takes_twice_as_long() -> None:
    fast, slow = (link(gpu).back(4096, "gathered") for gpu in ("h200", "a100-40gb"))
    assert slow / fast == pytest.approx(2, rel=0.05)


def test_a_gpu_without_a_known_link_cannot_swap() -> None:
    with pytest.raises(ConfigError, match="host"):
        link("tpu-v5e")


# In a scenario.


@pytest.mark.parametrize("preemption", sorted(PREEMPTIONS))
@pytest.mark.parametrize("engine", [None, "vllm"])
def test_a_replay_says_what_was_swapped_and_what_was_recomputed(
    preemption: str, engine: str | None
) -> None:
    scenario = Scenario(
        preemption=preemption,
        engine=engine,
        num_gpu_blocks_override=300,
        workload={"limit": 60, "request_rate": 40},
    )
    summary = simulate(scenario, CHAT, check=True).summary
    assert summary["num_preemptions"] > 0  # type: ignore[operator]
    assert bool(summary["swapped_tokens"]) is (preemption == "swap")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"preemption": "swapp"}, "swap"),
        ({"preemption": {"name": "swap", "host_gib": -1.0}}, "host_gib"),
        ({"preemption": {"name": "recompute", "host_gib": 1.0}}, "host_gib"),
        ({"victim": "first"}, "last"),
        ({"preemption": "swap", "gpu": "tpu-v5e", "model": "llama-2-7b"}, "host"),
        ({"scheduler": {"name": "chunked", "beam_turnover": 2.0}}, "beam_turnover"),
    ],
)
def test_a_preemption_that_cannot_be_is_one_line(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        simulate(
            Scenario.model_validate({"num_gpu_blocks_override": 600, **settings}),
            CHAT,
        )
