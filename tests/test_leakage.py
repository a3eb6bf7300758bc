"""What an observer of its own latencies learns: who hits, what defences leave, and the statistics."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim import Scenario
from kvsim.cli.app import run
from kvsim.core import Request
from kvsim.errors import ConfigError
from kvsim.leakage import Leakage, Question, study
from kvsim.leakage.defences import Noise, Rounding, Salt, read_defences
from kvsim.leakage.figures import write_figures
from kvsim.leakage.observer import Advantage, advantage, auc, observations_needed
from kvsim.leakage.probes import OBSERVER, Probing, watched
from kvsim.workload import write_trace

SYSTEM = [1, 2]
"""Hash ids of 512 tokens with which all prompts begin."""


def rows(count: int) -> list[Request]:
    """Requests of 1,024 tokens, the first half of them alike, one every two seconds."""
    ids = [[*SYSTEM, 10 + 2 * row, 11 + 2 * row] for row in range(count)]
    return [Request(row, 2.0 * row, 1100, 8, ids[row], 256) for row in range(count)]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("leakage") / "prompts.jsonl"
    write_trace(rows(120), str(path))
    return str(path)


@pytest.fixture(scope="module")
def found(trace: str) -> Leakage:
    defences = read_defences("none,salt:tenant,salt:session,round:0.1,noise:0.1")
    probing = Probing(probes=100, tokens=1024, lag=1.0)
    scenario = Scenario(num_gpu_blocks_override=20_000)
    return study(Question(scenario, trace, defences, probing))


def test_an_observer_of_a_shared_cache_tells_hits_at_once(found: Leakage) -> None:
    none = found.findings[0]
    assert (none.repeats.hit_share, none.controls.hit_share) == (1.0, 0.0)
    assert none.auc > 0.99
    assert none.hit_auc == none.auc
    assert none.advantage > 0.9
    assert none.requests_needed is not None
    assert none.requests_needed <= 3
    assert none.repeats.ttft_ms["p95"] < none.controls.ttft_ms["p5"]


def test_salting_leaves_nothing_to_tell(found: Leakage) -> None:
    none, tenant, session, *_ = found.findings
    for salted in (tenant, session):
        assert salted.repeats.hit_share == salted.controls.hit_share == 0.0
        assert abs(salted.auc - 0.5) < 0.15
        assert salted.requests_needed is None
    assert tenant.hit_rate == none.hit_rate  # all others are one tenant
    assert session.hit_rate == 0.0 < none.hit_rate
    assert session.mean_ttft_ms > none.mean_ttft_ms


def test_rounding_and_noise_hide_hits_and_delay_everybody(found: Leakage) -> None:
    none, _, _, rounded, noisy = found.findings
    assert rounded.repeats.hit_share == noisy.repeats.hit_share == 1.0
    assert rounded.auc == 0.5  # all answers take less than the quantum
    assert rounded.mean_ttft_ms == pytest.approx(100)
    assert none.auc > noisy.auc
    assert noisy.mean_ttft_ms == pytest.approx(none.mean_ttft_ms + 100, abs=40)


def test_figures_are_drawn_alike_each_time(found: Leakage, tmp_path: Path) -> None:
    written = [write_figures(found, tmp_path / name) for name in ("a", "b")]
    assert [path.name for path in written[0]] == ["ttft.png", "advantage.png"]
    first, second = ([path.read_bytes() for path in paths] for paths in written)
    assert first == second
    assert all(image.startswith(b"\x89PNG") for image in first)


def test_quotas_are_no_defence(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["leakage", trace, "--quotas", "*=10%", "--isolation", "global"]) == 2
    assert "accepted: kvsim leakage without --quotas" in capsys.readouterr().err


# The probes.


def test_probes_repeat_what_was_sent_or_share_only_what_targets_share() -> None:
    trace = rows(60)
    seen = watched(trace, Probing(probes=60, tokens=1024), "t", np.random.default_rng(0))
    sent = {tuple(request.hash_ids or ()) for request in trace}
    probes = {request.row: request for request in seen.requests if request.tenant == OBSERVER}
    assert probes.keys() == seen.repeats.keys() | seen.controls.keys()
    assert len(seen.repeats) == len(seen.controls) == 30
    assert set(seen.repeats.values()) == set(seen.controls.values()) == {512}
    for row, probe in probes.items():
        ids = list(probe.hash_ids or ())
        assert (tuple(ids) in sent) is (row in seen.repeats)
        assert ids[:2] == SYSTEM
        assert probe.prompt_tokens == 1025


def test_probes_come_in_order_of_time_and_their_rows_are_their_places() -> None:
    seen = watched(rows(60), Probing(probes=60, lag=3.5), "t", np.random.default_rng(0))
    times = [request.arrival for request in seen.requests]
    assert times == sorted(times)
    assert [request.row for request in seen.requests] == list(range(120))


def test_the_length_of_a_probe_is_chosen_where_prompts_differ() -> None:
    generator = np.random.default_rng(0)
    assert watched(rows(60), Probing(probes=60), "t", generator).tokens == 1024
    with pytest.raises(ConfigError, match=r"1 different beginnings of 512 tokens.*accepted"):
        watched(rows(60), Probing(probes=60, tokens=512), "t", generator)
    short = [one._replace(prompt_tokens=800) for one in rows(60)]
    assert watched(short, Probing(probes=60), "t", generator).tokens == 768  # between 512 and 1024


# The statistics.

Times = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=20)


@given(Times, Times)
def test_auc_is_the_chance_that_a_repeat_is_faster(repeats: list[float], rest: list[float]) -> None:
    pairs = [1.0 if a < b else 0.5 if a == b else 0.0 for a in repeats for b in rest]
    assert auc(np.array(repeats), np.array(rest)) == pytest.approx(sum(pairs) / len(pairs))


def test_the_advantage_is_judged_by_observations_that_did_not_choose_the_threshold() -> None:
    rng = np.random.default_rng(1)
    same = [advantage(*rng.normal(1, 0.1, (2, 200))).value for _ in range(200)]
    assert abs(float(np.mean(same))) < 0.02  # choosing and judging by the same ones gives 0.1
    apart = advantage(rng.normal(1, 0.1, 200), rng.normal(2, 0.1, 200))
    assert apart.value == 1.0
    assert 1.2 < apart.threshold < 1.8


@pytest.mark.parametrize(("high", "low"), [(1.0, 0.0), (0.9, 0.1), (0.7, 0.3), (0.6, 0.45)])
def test_as_many_requests_are_needed_as_a_binomial_test_takes(high: float, low: float) -> None:
    held_out = 10**6
    needed = observations_needed(Advantage(0.0, high, low, 0.001), held_out)
    assert needed is not None
    enough = (n for n in range(1, needed + 1, 2) if mistakes(n, high, low) <= 0.05)
    assert needed == next(enough)


def mistakes(count: int, high: float, low: float) -> float:
    """The larger chance to be wrong, at the best limit, by adding up the binomials."""

    def below(least: int, rate: float) -> float:
        terms = (math.comb(count, k) * rate**k * (1 - rate) ** (count - k) for k in range(least))
        return sum(terms)

    return min(max(below(c, high), 1 - below(c, low)) for c in range(count + 1))


def test_who_is_no_better_than_chance_never_has_enough_requests() -> None:
    assert observations_needed(Advantage(0.0, 0.5, 0.45, 0.04), 100) is None


# The command.


def test_defences_are_read_by_name_and_value() -> None:
    read = read_defences("round:0.2, noise,salt:user")
    assert list(read.values()) == [Rounding(quantum=0.2), Noise(), Salt("user")]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--defences", "salt:all"], "accepted: salt:tenant, salt:user, salt:session"),
        (["--defences", "round:fast"], "--defences round:fast; accepted"),
        (["--defences", "saltt"], "did you mean 'salt'"),
        (["--defences", ","], "names nothing"),
        (["--defences", "none:1"], "takes no value"),
        (["--probes", "41"], "--probes is 41; accepted: an even number from 40"),
        (["--lag", "-1"], "--lag is -1"),
        (["--max-model-len", "900"], "only 0 probes of 1024 tokens could be served"),
        (["--isolation", "user"], "accepted: --defences salt:user"),
    ],
)
def test_a_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str], trace: str, flags: list[str], message: str
) -> None:
    assert run(["leakage", trace, *flags]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert printed.err.count("\n") == 1


def test_the_command_prints_what_the_study_finds(
    capsys: pytest.CaptureFixture[str], trace: str, found: Leakage
) -> None:
    flags = ["--probes", "100", "--probe-tokens", "1024", "--lag", "1", "--defences", "none"]
    flags += ["--num-gpu-blocks-override", "20000"]
    assert run(["leakage", trace, *flags, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["trace"] == Path(trace).name
    assert document["defences"] == {"none": found.findings[0].as_dict()}
    assert run(["leakage", trace, *flags]) == 0
    assert "50 probes repeat the first 1,024 tokens" in capsys.readouterr().out
