"""Tenants: whose prompts share prefixes, what each tenant got, and what keeping them apart costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim import Scenario, simulate
from kvsim.cli.app import run
from kvsim.core import Request
from kvsim.errors import ConfigError
from kvsim.workload import TraceOptions, WorkloadSpec, generate, open_trace, write_trace
from kvsim.workload.isolation import Isolation, isolated

CHAT = str(Path(__file__).resolve().parent.parent / "traces" / "chat.jsonl.gz")
OWNERS = [("a", "x", "1"), ("a", "x", "2"), ("a", "y", "3"), ("b", "x", "4")]
"""Tenant, user and session of requests that all have the same prompt."""
SAME = [
    Request(row, 100.0 * row, 1024, 2, [7, 8], 512, session, tenant=tenant, user=user)
    for row, (tenant, user, session) in enumerate([*OWNERS, *OWNERS])
]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A trace of four owners who ask the same twice."""
    path = tmp_path / "shop.jsonl"
    write_trace(SAME, str(path))
    return path


@pytest.mark.parametrize("allocator", ["paged", "radix"])
@pytest.mark.parametrize(
    ("isolation", "namespaces"), [("global", 1), ("tenant", 2), ("user", 3), ("session", 4)]
)
def test_a_prompt_hits_only_in_its_own_namespace(
    shop: Path, allocator: str, isolation: str, namespaces: int
) -> None:
    scenario = Scenario(allocator=allocator, isolation=isolation, num_gpu_blocks_override=4096)
    cached = simulate(scenario, shop).requests.cached_tokens
    assert sum(cached == 0) == namespaces


def test_the_rows_of_a_trace_are_those_that_were_written_with_tenants(shop: Path) -> None:
    assert [r[-2:] for r in open_trace(shop)] == [r[-2:] for r in SAME]
    parquet = shop.with_suffix(".parquet")
    write_trace(SAME, str(parquet))
    assert [r[-2:] for r in open_trace(parquet)] == [r[-2:] for r in SAME]


def test_global_isolation_leaves_requests_as_they_are() -> None:
    assert all(a is b for a, b in zip(isolated(SAME, "global", "t"), SAME, strict=True))


@given(st.sampled_from(["tenant", "user", "session"]), st.lists(st.integers(0, 3), min_size=1))
def test_isolated_prompts_agree_exactly_when_they_did_and_share_an_owner(
    isolation: Isolation, chosen: list[int]
) -> None:
    requests = [SAME[i]._replace(row=row) for row, i in enumerate(chosen)]
    own = {"tenant": 1, "user": 2, "session": 3}[isolation]
    salted = list(isolated(requests, isolation, "t"))
    for i, one in enumerate(chosen):
        for j, other in enumerate(chosen):
            same = OWNERS[one][:own] == OWNERS[other][:own]
            assert (salted[i].hash_ids == salted[j].hash_ids) is same
            assert salted[i].hash_ids[1:] == salted[j].hash_ids[1:]  # type: ignore[index]


def test_a_request_without_a_session_is_one_of_its_own() -> None:
    alone = [Request(row, 0.0, 512, 1, [7], 512) for row in range(2)]
    first, second = isolated(alone, "session", "t")
    assert first.hash_ids != second.hash_ids


@pytest.mark.parametrize(("isolation", "missing"), [("tenant", "'tenant'"), ("user", "'user'")])
def test_a_request_of_nobody_cannot_be_told_apart(isolation: Isolation, missing: str) -> None:
    tenant = "a" if isolation == "user" else None
    nobody = [Request(4, 0.0, 512, 1, [7], 512, tenant=tenant)]
    with pytest.raises(ConfigError, match=f"request 4 has no {missing}.*accepted"):
        list(isolated(nobody, isolation, "t.jsonl"))


def test_an_isolation_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trace", "info", CHAT, "--isolation", "tenants"]) == 2
    assert "did you mean 'tenant'" in capsys.readouterr().err


def test_a_summary_says_what_each_tenant_got(shop: Path) -> None:
    result = simulate(Scenario(num_gpu_blocks_override=4096), shop)
    assert result.summary["tenant_requests"] == {"a": 6, "b": 2}
    hits = {"a": 5 * 1008 / 6144, "b": 2 * 1008 / 2048}
    assert result.summary["tenant_prefix_cache_hit_rate"] == pytest.approx(hits)
    assert result.requests.tenant == [request.tenant for request in SAME]


def test_a_trace_without_tenants_has_no_summary_of_them() -> None:
    scenario = Scenario(workload={"limit": 5})
    assert not [k for k in simulate(scenario, CHAT).summary if "tenant" in k]


def test_compare_says_what_isolation_costs(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--isolations", "global,tenant,session", "--num-gpu-blocks-override", "4096"]
    assert run(["compare", str(shop), *flags, "--jobs", "1", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)
    assert "isolation_cost" not in runs["global"]
    tenant, session = runs["tenant"]["isolation_cost"], runs["session"]["isolation_cost"]
    assert tenant["hit_rate"] == pytest.approx(1008 / 8192)  # one more prompt is computed
    assert session["usd"] == pytest.approx(3 * tenant["usd"])
    assert 0 < tenant["mean_ttft_ms"] < session["mean_ttft_ms"]
    assert run(["compare", str(shop), *flags, "--jobs", "1"]) == 0
    assert "against global" in capsys.readouterr().out


def test_generated_sessions_belong_to_tenants_and_users() -> None:
    spec = WorkloadSpec(requests=300, tenants=3, users=2)
    named, anonymous = list(generate(spec)), list(generate(WorkloadSpec(requests=300)))
    assert {request.tenant for request in named} == {"t0", "t1", "t2"}
    assert {request.user for request in named} == {"u0", "u1"}
    assert [r._replace(tenant=None, user=None) for r in named] == anonymous


def test_ideal_hits_of_an_isolated_trace_are_fewer(shop: Path) -> None:
    from kvsim.workload import summarise

    ratios = [
        summarise(open_trace(shop, TraceOptions(isolation=isolation))).prefix.token_hit_ratio
        for isolation in ("global", "tenant", "user", "session")
    ]
    assert ratios == [7 / 8, 6 / 8, 5 / 8, 4 / 8]
