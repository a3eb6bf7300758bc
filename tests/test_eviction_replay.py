"""Eviction policies in a whole replay, through settings."""

from __future__ import annotations

from pathlib import Path

import pytest

import kvsim
from kvsim.errors import ConfigError
from kvsim.memory.eviction.policies import EVICTIONS


def replayed(root: Path, **settings: object) -> dict[str, object]:
    scenario = kvsim.Scenario.model_validate(
        {"num_gpu_blocks_override": 400, "workload": {"limit": 120}, **settings}
    )
    return kvsim.simulate(scenario, root / "traces" / "chat.jsonl.gz", check=True).summary


@pytest.mark.parametrize("allocator", ["paged", "radix"])
@pytest.mark.parametrize("name", sorted(EVICTIONS))
def test_every_policy_serves_a_trace_that_does_not_fit(
    root: Path, allocator: str, name: str
) -> None:
    summary = replayed(root, allocator=allocator, eviction=name)
    assert summary["completed"] == 119  # one request is larger than the pool
    assert summary["num_evictions"] > 0
    assert 0 < summary["prefix_cache_hit_rate"] < 1


@pytest.mark.parametrize("allocator", ["paged", "radix"])
def test_a_short_time_to_live_costs_hits(root: Path, allocator: str) -> None:
    rates = [
        replayed(root, allocator=allocator, eviction={"name": "ttl", "ttl": ttl})
        for ttl in (1.0, 1e6)
    ]
    assert rates[0]["prefix_cache_hit_rate"] < rates[1]["prefix_cache_hit_rate"]


def test_each_replica_has_a_policy_of_its_own(root: Path) -> None:
    one, two = (replayed(root, eviction="s3-fifo", replicas=replicas) for replicas in (1, 2))
    assert one["completed"] == two["completed"] == 119


@pytest.mark.parametrize(
    ("eviction", "named"),
    [
        ("sive", "did you mean 'sieve'"),
        ({"name": "ttl", "tll": 3}, "unknown option 'tll'"),
        ({"name": "ttl", "ttl": "soon"}, "ttl = 'soon'"),
        ("kvsim.memory.eviction.queues:Ranks", "has neither priority nor"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(root: Path, eviction: object, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        replayed(root, eviction=eviction)


def test_an_executor_with_paged_memory_keeps_to_vllms_order(root: Path) -> None:
    with pytest.raises(ConfigError, match="accepted: --eviction lru, or --allocator radix"):
        replayed(root, eviction="fifo", executor="cpu")
