"""Quotas: what a tenant at its bound may do, and what all others notice of it."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim import Scenario, simulate
from kvsim.caching import accesses_of
from kvsim.caching.capacity import Capacity
from kvsim.caching.parts import divided as divided_trace
from kvsim.caching.parts import parts_study
from kvsim.cli.app import run
from kvsim.core import Leap, Request
from kvsim.errors import CapacityError, ConfigError
from kvsim.memory.eviction.policies import EVICTIONS
from kvsim.memory.partitioned import Partitioned
from kvsim.protocols import Allocator
from kvsim.quotas import Quotas, read_quotas
from kvsim.scheduling.by_tenant import BY_TENANT
from kvsim.scheduling.chunked import Chunked
from kvsim.scheduling.preemption.swap import Swap
from kvsim.scheduling.victims import VICTIMS
from kvsim.workload import generate, open_trace, write_trace
from kvsim.workload.spec import PRESETS
from tests.contracts.test_allocators import build
from tests.oracles.block_cache import lru
from tests.oracles.block_cache import replay as block_replay
from tests.oracles.costs import Crossing
from tests.oracles.moves import Link
from tests.oracles.replay import Log, replay
from tests.oracles.workloads import request_lists

COST = Crossing(base=10**9, per_context=10**5, per_token=10**7, per_pair=10**4)
SLOW = Crossing(base=10**10, per_context=0, per_token=0, per_pair=0)
DIVIDED = ["buddy", "contiguous", "paged", "radix", "slab"]


def divided(name: str, slots: int, quotas: dict[str, float], page: int = 4) -> Partitioned:
    return Partitioned(lambda share: build(name, int(slots * share), page), Quotas(quotas))


class Bounded(Log):
    """A log that sees to it that no part of the memory has more than its share."""

    def __init__(self, quotas: dict[str, float]) -> None:
        super().__init__()
        self.quotas = quotas

    def leap(self, leap: Leap, allocator: Allocator) -> None:
        super().leap(leap, allocator)
        assert isinstance(allocator, Partitioned)
        for name, part in allocator._parts.items():
            usage = part.usage()
            taken = usage.used + usage.internal + usage.reserved + usage.cached
            assert taken <= self.quotas[name] * allocator.total_slots + 4


@pytest.mark.parametrize("name", DIVIDED)
@pytest.mark.parametrize("scheduler", sorted(BY_TENANT))
@settings(max_examples=20, deadline=None)
@given(
    requests=request_lists(40, 30, size=20),
    owners=st.lists(st.sampled_from("abb"), min_size=20, max_size=20),
    slots=st.integers(120, 300),
    seats=st.sampled_from([1, 3, 8]),
    victim=st.sampled_from(sorted(VICTIMS)),
    swaps=st.booleans(),
)
def test_no_tenant_exceeds_its_quota_and_leaps_change_nothing(
    name: str,
    scheduler: str,
    requests: list[Request],
    owners: list[str],
    slots: int,
    seats: int,
    victim: str,
    swaps: bool,
) -> None:
    quotas = {"a": 0.3, "b": 0.6}
    owned = [r._replace(tenant=owners[r.row]) for r in requests]
    outcomes = []
    for leaps in (True, False):
        memory = divided(name, slots, quotas)
        engine = BY_TENANT[scheduler](
            memory,
            Swap(Link(), host_gib=100) if swaps else None,
            max_num_seqs=seats,
            victim=VICTIMS[victim](),
            leaps=leaps,
        )
        log = replay(owned, engine, memory, COST, check=True, log=Bounded(quotas))
        assert len(log.seen) + len(log.refused) == len(requests)
        assert not memory.held_slots
        outcomes.append((log.seen, log.refused, log.iterations, log.gaps, memory.evictions))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("name", ["paged", "radix"])
@settings(max_examples=40, deadline=None)
@given(requests=request_lists(40, 30), slots=st.integers(40, 120))
def test_one_tenant_with_all_of_the_pool_is_served_as_without_quotas(
    name: str, requests: list[Request], slots: int
) -> None:
    owned = [r._replace(tenant="a") for r in requests]
    outcomes = []
    for memory, kind in (
        (build(name, slots, 4), Chunked),
        (divided(name, slots, {"a": 1.0}), BY_TENANT["chunked"]),
    ):
        engine = kind(memory, max_num_seqs=4, victim=VICTIMS["largest"]())
        log = replay(owned, engine, memory, COST, check=True)
        refused = [row for row, _ in log.refused]
        outcomes.append((log.seen, refused, log.iterations, memory.evictions))
    assert outcomes[0] == outcomes[1]


# A noisy neighbour.


def quiet_and_noisy() -> tuple[list[Request], list[Request]]:
    """A tenant that asks the same now and then, and one that floods the engine with what is new."""
    quiet = [Request(row, 5.0 * row, 64, 4, [7, 8], 32, tenant="quiet") for row in range(6)]
    noisy = [
        Request(row, 0.02 * row, 120, 30, [100 + row, 9, 9, 9], 30, tenant="noisy")
        for row in range(300)
    ]
    return quiet, noisy


def merged(*tenants: list[Request]) -> list[Request]:
    both = sorted((r for tenant in tenants for r in tenant), key=lambda r: r.arrival or 0)
    return [request._replace(row=row) for row, request in enumerate(both)]


def of_quiet(
    requests: list[Request], memory: Allocator, kind: type[Chunked]
) -> list[tuple[int, int]]:
    """What each of the quiet tenant's requests hit, and how long it waited to be admitted."""
    log = replay(requests, kind(memory, max_num_seqs=64), memory, SLOW, check=True)
    served = sorted(log.sequences, key=lambda sequence: sequence.request.row)
    return [
        (one.cached_tokens, (one.scheduled or 0) - one.arrival)
        for one in served
        if one.request.tenant == "quiet"
    ]


@pytest.mark.parametrize("name", ["paged", "radix"])
def test_a_noisy_neighbour_costs_nobody_else_a_hit_nor_a_place_in_the_queue(name: str) -> None:
    quiet, noisy = quiet_and_noisy()
    alone = of_quiet(merged(quiet), divided(name, 800, {"quiet": 0.2}), BY_TENANT["chunked"])
    flooded = merged(quiet, noisy)
    bounded = of_quiet(
        flooded, divided(name, 800, {"quiet": 0.2, "noisy": 0.8}), BY_TENANT["chunked"]
    )
    shared = of_quiet(flooded, build(name, 800, 4), Chunked)
    assert [hit for hit, _ in bounded] == [hit for hit, _ in alone]
    assert sum(hit for hit, _ in alone) > sum(hit for hit, _ in shared)
    assert max(wait for _, wait in bounded) <= SLOW.base  # the iteration that is under way
    assert max(wait for _, wait in shared) > 100 * SLOW.base


def test_who_is_preempted_is_of_the_tenant_that_lacks_room() -> None:
    early = [Request(row, 0.0, 20, 60, tenant="a") for row in range(3)]
    late = [Request(3, 0.01, 20, 60, tenant="b")]
    memory = divided("paged", 240, {"a": 0.5, "b": 0.5})
    log = replay([*early, *late], BY_TENANT["chunked"](memory), memory, COST, check=True)
    by_row = {seen.row: seen.preemptions for seen in log.seen}
    assert by_row[3] == 0
    assert sum(by_row.values()) > 0


# Shares.


def test_shares_are_read_from_text_and_tables() -> None:
    assert read_quotas("acme=50%, *=0.1") == {"acme": 0.5, "*": 0.1}
    assert read_quotas({"a=b": 1}) == {"a=b": 1.0}
    assert Scenario(quotas="acme=50%").quotas == Scenario(quotas={"acme": 0.5}).quotas


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("acme", "'acme'; accepted: shares by tenant"),
        ("", "accepted: shares by tenant"),
        ("a=1%,a=2%", "names a tenant twice"),
        ("a=0%", "quota of 'a' is '0%'; accepted: a share"),
        ("a=-5%", "quota of 'a' is '-5%'"),
        ("a=nan", "quota of 'a' is 'nan'"),
        ("a=120%", "quota of 'a' is '120%'"),
        ("a=half", "quota of 'a' is 'half'"),
        ("a=60%,*=50%", "sum to 110% of the pool"),
        ({"a": True}, "quota of 'a'"),
        ({}, "quotas are"),
        (0.5, "quotas are"),
    ],
)
def test_a_share_that_cannot_be_is_one_line(given: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_quotas(given)


def request(tenant: str | None) -> Request:
    return Request(3, 0.0, 8, 1, tenant=tenant)


def test_each_other_tenant_has_the_share_of_the_star() -> None:
    quotas = Quotas({"a": 0.5, "*": 0.25})
    assert [quotas.part(request(t)) for t in "abca"] == ["a", "b", "c", "a"]
    assert [quotas.share(part) for part in "abc"] == [0.5, 0.25, 0.25]
    with pytest.raises(ConfigError, match="leave 0% of the pool to tenant 'd'; accepted"):
        quotas.part(request("d"))


def test_without_a_star_all_others_have_what_is_left_together() -> None:
    quotas = Quotas({"a": 0.75})
    assert [quotas.part(request(t)) for t in "bca"] == ["*", "*", "a"]
    assert quotas.share("*") == 0.25
    with pytest.raises(ConfigError, match="leave 0% of the pool to tenant 'b'"):
        Quotas({"a": 1.0}).part(request("b"))


def test_a_request_of_nobody_counts_for_no_quota() -> None:
    with pytest.raises(ConfigError, match=r"request 3 has no 'tenant'.*accepted"):
        Quotas({"a": 1.0}).part(request(None))


# In a scenario.


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trace of four tenants."""
    path = tmp_path_factory.mktemp("quotas") / "shop.jsonl"
    spec = replace(PRESETS["conversation"], requests=200, tenants=4, users=2)
    write_trace(generate(spec), str(path))
    return path


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"isolation": "global"}, "accepted: --isolation tenant, user or session, not global"),
        ({"scheduler": "static"}, "scheduler 'static'; accepted: chunked, continuous"),
        ({"allocator": "hybrid"}, "allocator 'hybrid'; accepted: buddy, contiguous, paged"),
        ({"watermark": 0.1}, "--watermark does not know"),
        ({"quotas": "*=0.001%"}, "the quota of 't0', 0.00%, is too small"),
        ({"quotas": "*=30%"}, "leave 10% of the pool to tenant"),
    ],
)
def test_quotas_that_cannot_be_are_one_line(
    shop: Path, settings: dict[str, object], said: str
) -> None:
    given = {"isolation": "tenant", "quotas": "*=25%", "num_gpu_blocks_override": 900, **settings}
    with pytest.raises((ConfigError, CapacityError), match=said):
        simulate(Scenario.model_validate(given), shop)


def test_a_request_that_its_quota_cannot_hold_is_rejected_with_the_reason() -> None:
    memory = divided("paged", 240, {"a": 0.5, "b": 0.5})
    requests = [Request(0, 0.0, 100, 60, tenant="a"), Request(1, 0.0, 100, 10, tenant="b")]
    log = replay(requests, BY_TENANT["chunked"](memory), memory, COST, check=True)
    assert log.refused == [(0, "159 tokens exceed the 120 slots of tenant 'a'")]
    assert [seen.row for seen in log.seen] == [1]


def test_compare_says_what_quotas_cost(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--isolations", "global,tenant", "--quotas", "*=25%", "--jobs", "1"]
    flags += ["--num-gpu-blocks-override", "2000", "--json"]
    assert run(["compare", str(shop), *flags]) == 0
    runs = json.loads(capsys.readouterr().out)
    assert list(runs) == ["global", "tenant", "tenant-quotas"]
    cost = runs["tenant-quotas"]["isolation_cost"]
    lost = runs["global"]["prefix_cache_hits"] - runs["tenant-quotas"]["prefix_cache_hits"]
    assert (cost["usd"] > 0) is (lost > 0)
    assert cost["mean_ttft_ms"] == pytest.approx(
        runs["tenant-quotas"]["mean_ttft_ms"] - runs["global"]["mean_ttft_ms"]
    )


@pytest.mark.parametrize(
    "command",
    [
        "replay -",
        "replay TRACE --limit 9 --json",
        "compare TRACE --limit 9 --allocators paged,radix --jobs 1",
        "cache TRACE --policies lru --capacities inf",
        "plan TRACE --limit 9 --slo ttft=100s --quick --jobs 1 --no-cache",
    ],
)
def test_a_tenant_with_a_quota_and_no_request_is_named_once(
    shop: Path, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ["--isolation", "tenant", "--quotas", "acme=1%,t0=25%,*=20%,bolt=1%"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(shop.read_bytes())))
    assert run([*command.replace("TRACE", str(shop)).split(), *flags]) == 0
    notes = capsys.readouterr().err.splitlines()
    assert notes == ["kvsim: note: --quotas names who has no request: 'acme', 'bolt'"]


# In a cache without time.


def hits_by_tenant(trace: Path, quotas: str, capsys: pytest.CaptureFixture[str]) -> dict[str, int]:
    """Hit tokens of each tenant, and of all, in a cache of 300 blocks."""
    flags = ["--isolation", "tenant", "--quotas", quotas, "--capacities", "300blocks"]
    assert run(["cache", str(trace), *flags, "--policies", "lru", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["quotas"]
    return {row["tenant"]: row["hit_tokens"] for row in rows}


def test_a_tenants_hits_in_a_divided_cache_are_those_of_a_cache_of_its_own(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    divided_hits = hits_by_tenant(shop, "t0=40%,*=20%", capsys)
    assert divided_hits.pop("all") == sum(divided_hits.values()) > 0
    for tenant, hits in divided_hits.items():
        own = [request for request in open_trace(shop) if request.tenant == tenant]
        alone = lru(120 if tenant == "t0" else 60)
        assert hits == block_replay(own, alone, own[0].hash_block).tokens


@pytest.mark.parametrize("policy", ["lru", "s3-fifo", "lfu", "ttl"])
def test_a_noisy_neighbour_changes_nobody_elses_hits_in_a_divided_cache(policy: str) -> None:
    quiet, noisy = quiet_and_noisy()
    found = []
    for requests in (merged(quiet), merged(quiet, noisy)):
        owned = divided_trace(requests, {"quiet": 0.2, "noisy": 0.8}, "t")
        plan = {policy: lambda capacity: EVICTIONS[policy](**options(policy, capacity))}
        rows = parts_study(owned, [Capacity("100", 100)], plan, partial(accesses_of, block_size=4))
        found.append(next(row.hit_tokens for row in rows if row.tenant == "quiet"))
    assert found[0] == found[1] > 0


def options(policy: str, capacity: int) -> dict[str, int]:
    return {"capacity": capacity} if policy == "s3-fifo" else {}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--quotas", "*=10%"], "accepted: --isolation tenant, user or session, not global"),
        (["--quotas", "t0", "--isolation", "tenant"], "accepted: shares by tenant"),
        (["--quotas", "*=30%", "--isolation", "tenant"], "leave 10% of the pool"),
    ],
)
def test_quotas_of_a_cache_that_cannot_be_are_one_line(
    shop: Path, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cache", str(shop), *flags]) == 2
    assert said in capsys.readouterr().err
