"""Generated workloads: what was asked for is what comes out, the same for the same seed."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.core import Request
from kvsim.errors import ConfigError, TraceError
from kvsim.workload import PrefixTree, Sessions, WorkloadSpec, generate, open_trace, write_trace
from kvsim.workload.arrivals import arrival_process
from kvsim.workload.distributions import distribution
from kvsim.workload.spec import PRESETS
from tests.oracles.workloads import listed


def prompt_length(request: Request) -> float:
    return request.prompt_tokens


MEANS = [("fixed:7", 7), ("uniform:10:20", 15), ("lognormal:300:1.0", 300), ("gamma:50:2", 50),
         ("exponential:9", 9), ("geometric:4", 4), ("zipf:1.1:100", None)]  # fmt: skip


@pytest.mark.parametrize(("text", "mean"), MEANS)
def test_a_distribution_has_the_mean_it_names(text: str, mean: float | None) -> None:
    kind = distribution(text, prompt_length)
    drawn = kind.draw(np.random.default_rng(0), 200_000)
    assert mean is None or kind.mean == mean
    assert drawn.mean() == pytest.approx(kind.mean, rel=0.02)
    assert drawn.min() >= 0


@pytest.mark.parametrize("text", ["poisson", "gamma:0.2", "gamma:4", "mmpp:20:0.1:5", "uniform"])
def test_arrivals_rise_at_the_rate_that_was_asked_for(text: str) -> None:
    chunks = arrival_process(text).times(8.0, np.random.default_rng(1))
    times = np.concatenate(list(itertools.islice(chunks, 60)))
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0
    assert len(times) / times[-1] == pytest.approx(8.0, rel=0.06)


def test_gaps_vary_as_their_process_says() -> None:
    def variation(text: str) -> float:
        chunks = arrival_process(text).times(1.0, np.random.default_rng(2))
        gaps = np.diff(np.concatenate(list(itertools.islice(chunks, 30))))
        return float(gaps.std() / gaps.mean())

    assert variation("uniform") == pytest.approx(0, abs=1e-9)
    assert variation("poisson") == pytest.approx(1, rel=0.03)
    assert variation("gamma:0.25") == pytest.approx(2, rel=0.05)
    assert variation("mmpp:1:0.5:3") == pytest.approx(1, rel=0.03)
    assert variation("mmpp:50:0.05:20") > 2


def test_bursts_take_their_share_of_the_time() -> None:
    """With a quiet state that is nearly silent, arrivals fall into bursts of the given length."""
    chunks = arrival_process("mmpp:1e6:0.1:10").times(5.0, np.random.default_rng(3))
    times = np.concatenate(list(itertools.islice(chunks, 30)))
    silences = np.diff(times)[np.diff(times) > 5.0]
    assert silences.mean() == pytest.approx(90, rel=0.15)
    assert len(silences) * 100 == pytest.approx(times[-1], rel=0.15)


@pytest.mark.parametrize("name", PRESETS)
def test_the_same_seed_gives_the_same_workload(name: str) -> None:
    spec = dataclasses.replace(PRESETS[name], requests=300)
    first, again = list(generate(spec, 7)), list(generate(spec, 7))
    assert first == again
    assert first != list(generate(spec, 8))
    assert [r.row for r in first] == list(range(300))
    assert list(generate(dataclasses.replace(spec, requests=200), 7)) == first[:200]


def test_changing_the_answers_leaves_arrivals_and_prompts_as_they_were() -> None:
    spec = WorkloadSpec(requests=500)
    other = dataclasses.replace(spec, output="fixed:10")
    for one, two in zip(generate(spec), generate(other), strict=True):
        assert (one.arrival, one.prompt_tokens) == (two.arrival, two.prompt_tokens)


specs = st.builds(
    WorkloadSpec,
    requests=st.integers(1, 120),
    rate=st.floats(0.01, 1e4),
    arrival=st.sampled_from(["poisson", "gamma:0.3", "mmpp:10:0.2:3", "uniform"]),
    prompt=st.sampled_from(["fixed:1", "fixed:64", "lognormal:90:1.5", "uniform:1:2000"]),
    output=st.sampled_from(["fixed:1", "geometric:30", "fixed:100000"]),
    prefix=st.builds(PrefixTree, st.integers(1, 5), st.integers(0, 900), st.integers(1, 4), st.floats(0, 3)),
    sessions=st.builds(Sessions, st.sampled_from(["fixed:1", "fixed:4", "geometric:3"]),
                       st.sampled_from(["fixed:0", "exponential:3"])),
    hash_block=st.sampled_from([1, 16, 64, 512]),
    max_tokens=st.integers(902, 3000),
)  # fmt: skip


@given(specs, st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_every_generated_request_keeps_the_promises_of_a_trace(
    spec: WorkloadSpec, seed: int
) -> None:
    requests = list(generate(spec, seed))
    previous: dict[str, Request] = {}
    content: dict[tuple[int, int], int] = {}
    latest = 0.0
    assert len(requests) == spec.requests
    for request in requests:
        assert request.output_tokens >= 1
        assert spec.prefix.tokens < request.prompt_tokens
        assert request.prompt_tokens + request.output_tokens <= spec.max_tokens
        if request.arrival is not None:
            assert latest <= request.arrival < math.inf
            latest = request.arrival
        else:
            assert request.session is not None
            before = previous[request.session]
            assert request.think_time is not None
            assert request.think_time >= 0
            assert request.prompt_tokens > before.prompt_tokens + before.output_tokens
            assert request.hash_ids is not None
            assert before.hash_ids is not None
            assert request.hash_ids[: len(before.hash_ids)] == before.hash_ids
        if request.session is not None:
            previous[request.session] = request
        if request.hash_ids is not None:
            assert len(request.hash_ids) == -(-request.prompt_tokens // spec.hash_block)
            for place, own in enumerate(request.hash_ids):
                before_it = request.hash_ids[place - 1] if place else -1
                assert content.setdefault((own, place), before_it) == before_it


def prefix_of(requests: Iterator[Request], blocks: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple((request.hash_ids or [])[:blocks]) for request in requests)


def test_prefixes_form_a_tree_whose_branches_follow_zipf() -> None:
    tree = PrefixTree(groups=3, tokens=640, depth=2, zipf=1.0)
    spec = WorkloadSpec(requests=9000, prompt="fixed:64", prefix=tree)
    trunks = prefix_of(generate(spec), 5)
    leaves = prefix_of(generate(spec), 10)
    assert (len(trunks), len(leaves)) == (3, 9)
    shares = sorted((count / 9000 for count in trunks.values()), reverse=True)
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.02)
    below = defaultdict(set)
    for leaf in leaves:
        below[leaf[:5]].add(leaf[5:])
    assert all(len(branches) == 3 for branches in below.values())


def test_a_workload_without_sharing_names_no_blocks() -> None:
    assert all(r.hash_ids is None for r in generate(WorkloadSpec(requests=50)))


def test_sessions_begin_at_the_rate_of_requests_by_their_turns() -> None:
    spec = WorkloadSpec(requests=8000, rate=10.0, sessions=Sessions("fixed:4"))
    requests = list(generate(spec))
    starts = [r.arrival for r in requests if r.arrival is not None]
    assert len(starts) == 2000
    assert starts[-1] == pytest.approx(800, rel=0.1)
    thinks = [r.think_time for r in requests if r.think_time is not None]
    assert np.mean(thinks) == pytest.approx(10, rel=0.05)


def test_lengths_can_be_fitted_to_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    seen = [
        Request(i, float(i), p, o) for i, (p, o) in enumerate([(10, 1), (20, 2), (400, 3)] * 50)
    ]
    write_trace(seen, str(path))
    spec = WorkloadSpec(requests=3000, prompt=f"fit:{path}", output=f"fit:{path}")
    made = list(generate(spec))
    assert {r.prompt_tokens for r in made} == {10, 20, 400}
    assert {r.output_tokens for r in made} == {1, 2, 3}
    logs = np.log([10, 20, 400])
    fitted = distribution(f"fit-lognormal:{path}", prompt_length)
    drawn = np.log(fitted.draw(np.random.default_rng(0), 50_000))
    assert drawn.mean() == pytest.approx(logs.mean(), rel=0.02)
    assert drawn.std() == pytest.approx(logs.std(), rel=0.02)


REFUSED = [
    ("prompt", "normal:5"), ("prompt", "lognormal"), ("prompt", "lognormal:5"), ("prompt", ""),
    ("prompt", "lognormal:nan:1"), ("prompt", "lognormal:5:-1"), ("prompt", "lognormal:inf:1"),
    ("prompt", "fixed:-1"), ("prompt", "fixed:nan"), ("prompt", "fixed:inf"), ("prompt", "fixed:x"),
    ("prompt", "uniform:9:1"), ("prompt", "zipf:1:0"), ("prompt", "zipf:1:1e12"),
    ("prompt", "geometric:0.5"), ("prompt", "gamma:1:0"), ("prompt", "exponential:0"),
    ("output", "fixed"), ("arrival", "weibull"), ("arrival", "gamma"), ("arrival", "gamma:0"),
    ("arrival", "gamma:nan"), ("arrival", "poisson:1"), ("arrival", "mmpp:1:2:3"),
    ("arrival", "mmpp:0.5:0.1:1"), ("arrival", "mmpp:2:0.1"), ("arrival", "gamma:x"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "text"), REFUSED)
def test_a_text_that_names_nothing_is_refused(field: str, text: str) -> None:
    with pytest.raises(ConfigError, match=r"accepted|known") as caught:
        next(generate(WorkloadSpec(**{field: text})))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: WorkloadSpec(requests=0), lambda: WorkloadSpec(requests=-5),
        lambda: WorkloadSpec(rate=-1.0), lambda: WorkloadSpec(rate=math.nan),
        lambda: WorkloadSpec(rate=math.inf), lambda: WorkloadSpec(hash_block=0),
        lambda: WorkloadSpec(max_tokens=0), lambda: PrefixTree(groups=0),
        lambda: PrefixTree(depth=0), lambda: PrefixTree(tokens=-1), lambda: PrefixTree(zipf=-1.0),
        lambda: PrefixTree(zipf=math.nan), lambda: PrefixTree(groups=1000, tokens=5, depth=30),
        lambda: WorkloadSpec(prefix=PrefixTree(tokens=5000), max_tokens=5000),
        lambda: generate(WorkloadSpec(), -1),
    ],
)  # fmt: skip
def test_a_workload_that_cannot_exist_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ConfigError, match="accepted"):
        make()


def test_a_fit_to_a_trace_that_is_not_there_is_a_trace_error() -> None:
    with pytest.raises(TraceError, match="no such file"):
        next(generate(WorkloadSpec(prompt="fit:absent.jsonl")))


def test_generated_traces_read_back_as_they_were_made(tmp_path: Path) -> None:
    spec = dataclasses.replace(PRESETS["conversation"], requests=2500)
    path = tmp_path / "t.jsonl.gz"
    write_trace(generate(spec, 3), str(path))
    assert listed(open_trace(path)) == list(generate(spec, 3))
