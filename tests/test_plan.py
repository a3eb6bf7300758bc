"""Capacity planning: the searches, their bounds, prices, and what a plan says to its reader."""

from __future__ import annotations

import json
import os
import re
import shlex
import sqlite3
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import date
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.catalog import load_gpu
from kvsim.cli.app import run
from kvsim.errors import CapacityError, ConfigError
from kvsim.planning import Plan, Question, plan
from kvsim.planning.archive import Archive, context
from kvsim.planning.document import document
from kvsim.planning.objective import Objective, read_objective
from kvsim.planning.pool import Lab
from kvsim.planning.prices import Preference, quote, read_prices, warnings
from kvsim.planning.question import Electricity, Owned
from kvsim.planning.search import Bench, Placement, smallest
from kvsim.planning.show import beside, headline
from kvsim.planning.trial import Change, Outcome, Trial
from kvsim.planning.unloaded import Glance, survey
from kvsim.scenario import Scenario
from kvsim.simulation.parallel import end
from kvsim.workload import open_trace

TODAY = date(2026, 11, 29)
LOOSE = read_objective(["ttft_p99=1s", "tpot_p99=30ms"])


@pytest.fixture(scope="session")
def mooncake(root: Path) -> str:
    """The shipped sample in the Mooncake format: 1,000 requests in 293 s."""
    return str(root / "traces" / "mooncake.jsonl.gz")


@pytest.fixture(scope="module")
def replays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    """What plans of the whole sample have replayed: those that differ in prices alone share it."""
    with Archive(tmp_path_factory.mktemp("replays")) as opened:
        yield opened


def ask(trace: str, *gpus: str, **more: object) -> Question:
    """A question about a small model."""
    given = {"objective": LOOSE, "as_of": TODAY, "explore": False, "token_budgets": (None,), **more}
    scenario = given.pop("scenario", Scenario(model="llama-3.1-8b"))
    return Question(scenario, trace, gpus, **given)  # type: ignore[arg-type]


def trial(trace: str, replicas: int, objective: Objective, **more: object) -> Trial:
    scenario = Scenario(model="llama-3.1-8b", tensor_parallel_size=4, replicas=replicas)
    return Trial(scenario, trace, 1000, objective, **more)  # type: ignore[arg-type]


# The search.


def answered(least: int, most: int, guess: int, threshold: int) -> tuple[int | None, list[int]]:
    """What ``smallest`` finds when everything from a threshold on is enough, and what it tried."""
    tried: list[int] = []

    def passes(number: int) -> Generator[Sequence[Trial], list[Outcome], bool]:
        tried.append(number)
        yield from ()
        return number >= threshold

    search = smallest(passes, least, most, guess)
    try:
        next(search)
    except StopIteration as end:
        return end.value, tried
    raise AssertionError


@given(st.integers(1, 300), st.integers(0, 300), st.integers(-5, 700), st.integers(1, 700))
def test_the_search_finds_the_smallest_number_and_has_seen_the_one_before_fail(
    least: int, more: int, guess: int, threshold: int
) -> None:
    most = least + more
    found, tried = answered(least, most, guess, threshold)
    expected = max(least, threshold)
    assert found == (expected if threshold <= most else None)
    assert len(tried) == len(set(tried))
    assert all(least <= number <= most for number in tried)
    if found is not None and found > least:
        assert found - 1 in tried
    assert len(tried) <= 2 * most.bit_length() + 2


def test_a_right_guess_costs_two_replays() -> None:
    assert answered(1, 100, 7, 7) == (7, [7, 6])


def test_a_plan_is_the_smallest_fleet_that_a_replay_of_its_own_confirms(
    mooncake: str, replays: Archive
) -> None:
    found = plan(ask(mooncake, "h200", tensor_parallel_sizes=(4,)), archive=replays)
    [best] = found.candidates
    bench = Bench(Scenario(model="llama-3.1-8b"), mooncake, 1000, LOOSE)
    replicas = best.fleet.replicas
    assert replicas > 1
    assert bench.trial(best.fleet.placement, replicas, whole=True).run().met
    assert not bench.trial(best.fleet.placement, replicas - 1, whole=True).run().met


def test_a_plan_does_not_depend_on_the_number_of_processes(mooncake: str) -> None:
    few = Scenario(model="llama-3.1-8b", workload={"limit": 50})
    question = ask(mooncake, "h200", "h100-sxm", scenario=few, explore=True)
    one, two = plan(question, jobs=1), plan(question, jobs=2)
    assert document(one, "") == document(two, "")


def test_every_gpu_of_a_pipeline_is_counted_paid_and_shown(mooncake: str) -> None:
    staged = Scenario(pipeline_parallel_size=2, workload={"limit": 50})
    question = ask(
        mooncake,
        "h200",
        scenario=staged.changed(replicas=2),
        tensor_parallel_sizes=(2,),
        objective=read_objective(["ttft_p50=60s"]),
        preference=Preference(gpu_prices=((None, 1.0),)),
    )
    found = plan(question)
    [best] = found.candidates
    assert best.fleet.bill.gpus_needed == best.usd_per_hour == 2 * 2 * 2
    assert best.by_means is not None
    assert best.by_means.gpus == best.by_means.sizing.replicas * 4
    assert headline(found).startswith("8 x H200-SXM-141GB (2 replicas of TP 2, PP 2)")
    [none] = plan(replace(question, scenario=staged, max_gpus=3)).refused
    assert none.reason == "a replica of TP 2, PP 2 has more GPUs than --max-gpus 3"


def test_headroom_never_makes_a_fleet_smaller(mooncake: str, replays: Archive) -> None:
    asked = ask(mooncake, "h200", tensor_parallel_sizes=(4,))
    bare = plan(asked, keep=False, archive=replays)
    more = plan(replace(asked, headroom=1.0), keep=False, archive=replays)
    assert more.candidates[0].fleet.replicas > bare.candidates[0].fleet.replicas


def test_a_given_fleet_is_kept_and_its_highest_rate_found(mooncake: str) -> None:
    scenario = Scenario(model="llama-3.1-8b", replicas=6, workload={"limit": 400})
    question = ask(mooncake, "h200", scenario=scenario, tensor_parallel_sizes=(4,), explore=True)
    [best] = plan(question).candidates
    assert best.fleet.replicas == 6
    assert best.highest_rate is not None
    assert best.highest_rate > 1
    bench = Bench(scenario, mooncake, 400, LOOSE)
    enough = bench.trial(best.fleet.placement, 6, Change(traffic=best.highest_rate)).run()
    beyond = bench.trial(best.fleet.placement, 6, Change(traffic=best.highest_rate + 0.05)).run()
    assert enough.met
    assert not beyond.met


def test_a_given_fleet_that_is_too_small_is_said_to_be_and_its_lower_rate_found(
    mooncake: str,
) -> None:
    scenario = Scenario(model="llama-3.1-8b", replicas=1, workload={"limit": 400})
    question = ask(mooncake, "h200", scenario=scenario, tensor_parallel_sizes=(4,), explore=True)
    [best] = plan(question).candidates
    assert not best.outcome.met
    assert best.highest_rate is not None
    assert best.highest_rate < 1


def test_every_trial_runs_once(mooncake: str) -> None:
    bench = Bench(Scenario(model="llama-3.1-8b"), mooncake, 1000, LOOSE)

    def twice() -> Generator[Sequence[Trial], list[Outcome], list[Outcome]]:
        wanted = bench.trial(Placement("h200", 4, None), 4)
        return (yield [wanted, wanted])

    with Lab(1) as lab:
        [[first, second]] = lab.run([twice()])
        assert first is second
        assert lab.trials == 1


# What is remembered.


def test_a_plan_that_is_stopped_ends_its_own_processes_and_no_other_plan_s() -> None:
    spawn = get_context("spawn")
    with ProcessPoolExecutor(1, spawn) as stopped, ProcessPoolExecutor(1, spawn) as other:
        worker = other.submit(os.getpid).result()
        stopped.submit(os.getpid).result()
        end(stopped)
        assert other.submit(os.getpid).result() == worker


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    with Archive(tmp_path / "cache") as opened:
        yield opened


def test_a_plan_asked_again_replays_nothing_and_says_the_same(
    mooncake: str, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = Scenario(model="llama-3.1-8b", workload={"limit": 50})
    question = ask(mooncake, "h200", scenario=few, tensor_parallel_sizes=(4,), explore=True)
    first = plan(question, keep=False, archive=archive)
    for work in (Trial, Glance):
        monkeypatch.setattr(work, "run", lambda self: pytest.fail("was replayed again"))
    assert document(plan(question, keep=False, archive=archive), "") == document(first, "")
    dear = replace(question, preference=Preference(gpu_prices=((None, 99.0),)))
    [best] = plan(dear, keep=False, archive=archive).candidates
    assert best.usd_per_hour == pytest.approx(99.0 * best.fleet.bill.gpus_needed)


def test_what_is_remembered_is_named_by_all_that_it_depends_on(
    write: Callable[[str, str], Path],
) -> None:
    path = write("config.json", "{}")
    named = Scenario(model=str(path))
    before = context(named, "trace")
    assert before == context(named, "trace")
    assert before != context(named, "another trace")
    write("config.json", '{"layers": 2}')
    assert before != context(named, "trace")
    assert context(Scenario(allocator="elsewhere:Allocator"), "trace") is None


def test_the_archive_keeps_the_latest_entries(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvsim.planning.archive.MOST", 3)
    for number in range(5):
        archive.keep(f"trial {number}", str(number))
    assert [archive.find(f"trial {n}") for n in range(5)] == [None, None, "2", "3", "4"]


@pytest.mark.parametrize("spoil", ["not a database", "of another schema", "of another program"])
def test_a_file_that_is_no_archive_is_refused_in_one_line(tmp_path: Path, spoil: str) -> None:
    path = tmp_path / "replays.sqlite"
    if spoil == "not a database":
        path.write_text("nothing of the kind" * 100)
    else:
        with Archive(tmp_path):
            pass
        pragma = "user_version" if spoil == "of another schema" else "application_id"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA {pragma} = 7")
    with pytest.raises(ConfigError, match="--no-cache goes without"):
        Archive(tmp_path)


# Trials.


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([0.2, 0.5, 1.0, 3.0]),
    st.sampled_from([0.005, 0.02, 0.1]),
    st.sampled_from([None, 0.5, 0.9, 0.99]),
    st.sampled_from(["p50", "p90", "p99"]),
)
def test_a_run_that_is_stopped_early_would_not_have_met_its_objective(
    mooncake: str, ttft: float, tpot: float, share: float | None, statistic: str
) -> None:
    objective = read_objective([f"ttft_{statistic}={ttft}s", f"tpot_{statistic}={tpot}s"], share)
    short, whole = (trial(mooncake, 3, objective, whole=flag).run() for flag in (False, True))
    assert short.met == whole.met
    assert short.attainment >= whole.attainment
    assert whole.summary is not None
    if short.summary is not None:
        assert short.summary == whole.summary


def test_a_slower_engine_is_exactly_one_whose_steps_take_longer(mooncake: str) -> None:
    slow = {"model": "llama-3.1-8b", "replicas": 4}
    objective = read_objective(["ttft=3s"])
    fixed = [
        Scenario(**slow, cost_model={"name": "fixed", "step_time": step}) for step in (0.02, 0.04)
    ]
    one = Trial(fixed[0], mooncake, 1000, objective, Change(slowness=2.0), whole=True).run()
    two = Trial(fixed[1], mooncake, 1000, objective, whole=True).run()
    assert one.attainment == two.attainment
    assert one.summary is not None
    assert two.summary is not None
    for key in ("mean_ttft_ms", "p99_tpot_ms", "duration", "output_throughput", "request_goodput"):
        assert one.summary[key] == pytest.approx(two.summary[key], rel=1e-9)


def test_longer_answers_are_more_output_tokens(mooncake: str) -> None:
    plain = trial(mooncake, 4, LOOSE, whole=True).run().summary
    longer = trial(mooncake, 4, LOOSE, change=Change(answers=1.2), whole=True).run().summary
    assert plain is not None
    assert longer is not None
    ratio = longer["total_output_tokens"] / plain["total_output_tokens"]  # type: ignore[operator]
    assert ratio == pytest.approx(1.2, abs=0.01)


def test_requests_that_were_refused_have_missed_their_limits(
    write: Callable[[str, str], Path],
) -> None:
    rows = [
        {"arrival": n / 10, "prompt_tokens": 100 + 900 * (n % 2), "output_tokens": 5}
        for n in range(80)
    ]
    path = write("half.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    scenario = Scenario(max_model_len=512)
    outcome = Trial(scenario, str(path), 80, read_objective(["ttft=9s"], 0.4), whole=True).run()
    assert outcome.attainment == 0.5
    assert not outcome.met


# Bounds and means.


@pytest.mark.parametrize("size", [1, 4])
def test_no_fleet_beats_idle_engines(mooncake: str, size: int) -> None:
    scenario = Scenario(model="llama-3.1-8b", tensor_parallel_size=size)
    objective = read_objective(["ttft=300ms", "tpot=6ms"], 0.9)
    traffic = survey("t", open_trace(mooncake), None)
    seen = Glance(scenario, mooncake, traffic, objective).run()
    many = Trial(scenario.changed(replicas=64), mooncake, 1000, objective, whole=True).run()
    assert many.attainment <= seen.attainment < 1


def test_an_objective_that_idle_engines_miss_costs_no_search(mooncake: str) -> None:
    found = plan(ask(mooncake, "h200", objective=read_objective(["ttft_p99=10ms"])))
    assert not found.candidates
    assert "even on an idle engine" in found.refused[0].reason
    assert found.trials <= 1


def test_mean_sizing_of_the_conversation_trace_is_far_off(shared: Path) -> None:
    """Two GPUs by means, which serve a small part in time; four, six and eight do far better."""
    trace = str(shared / "traces" / "mooncake" / "conversation_trace.jsonl.gz")
    objective = read_objective(["ttft=2s", "tpot=50ms"], 0.9)
    scenario = Scenario(model="llama-3.1-8b")
    traffic = survey("conversation", open_trace(trace), None)
    sizing = Glance(scenario, trace, traffic, objective).run().sizing
    assert sizing is not None
    assert sizing.replicas == 2
    bench = Bench(scenario, trace, traffic.requests, objective)
    shares = [
        bench.trial(Placement("h200", 1, None), count, whole=True).run().attainment
        for count in (2, 4, 8)
    ]
    assert shares[0] < 0.4
    assert 0.6 < shares[1] < shares[2] < 0.97


# Prices.


def test_of_a_price_history_the_newest_is_taken() -> None:
    [price] = quote(load_gpu("a100-40gb"), Preference()).prices
    assert (price.sku, price.usd_per_hour) == ("p4d.24xlarge", 21.957642)


def test_a_provider_that_does_not_list_a_gpu_gives_way_to_the_cheapest_that_does() -> None:
    quoted = quote(load_gpu("h200"), Preference(provider="vultr"))
    assert len(quoted.prices) == 1
    assert "vultr lists none" in quoted.note


def test_a_provider_that_is_nowhere_is_a_slip_of_the_pen(write: Callable[[str, str], Path]) -> None:
    path = write(
        "prices.csv",
        "gpu,usd_per_gpu_hour,source,date,provider\nh200,2,s,2026-09,north\nh200,1,s,2026-09,south\n",
    )
    with pytest.raises(ConfigError, match=r"unknown provider 'runpd'; did you mean 'runpod'\?"):
        quote(load_gpu("h200"), Preference(provider="runpd"))
    with pytest.raises(ConfigError, match=r"did you mean 'runpod'"):
        quote(load_gpu("h200"), Preference(provider="runpd", gpu_prices=((None, 2.0),)))
    with pytest.raises(ConfigError, match=r"'aws' \(known: any, north, south\)"):
        quote(load_gpu("h200"), Preference(provider="aws", file=path))
    [north] = quote(load_gpu("h200"), Preference(provider="north", file=path)).prices
    assert north.usd_per_gpu_hour == 2


@pytest.mark.parametrize(("gpu", "sku"), [("a100-80gb", "p4de.24xlarge"), ("l40s", "g6e.48xlarge")])
def test_whoever_commits_for_longer_pays_less_an_hour_and_is_told_for_how_long(
    gpu: str, sku: str
) -> None:
    dollars, doubts = [], []
    for commitment in ("on-demand", "1y", "3y"):
        [price] = quote(load_gpu(gpu), Preference(commitment=commitment)).prices
        assert (price.provider, price.sku) == ("aws", sku)
        dollars.append(price.usd_per_gpu_hour)
        doubts.append(" ".join(warnings(price, TODAY)))
    assert dollars == sorted(dollars, reverse=True)
    assert ["whole year" in doubt for doubt in doubts] == [False, True, True]


def test_a_commitment_that_nobody_sells_is_named_with_those_that_are_sold() -> None:
    with pytest.raises(ConfigError, match=r"no 1y price for H200.*known: .*on-demand"):
        quote(load_gpu("h200"), Preference(commitment="1y"))


def test_a_day_of_the_past_knows_the_prices_of_its_time() -> None:
    """AWS cut the price of p4d by a third in June 2025."""
    gpu = load_gpu("a100-40gb")
    [then] = quote(gpu, Preference(), date(2025, 5, 31)).prices
    assert then.usd_per_hour == 32.7726
    with pytest.raises(ConfigError, match=r"known: on-demand linux in us-east-1 of 2026-07"):
        quote(gpu, Preference(), date(2020, 1, 1))


def test_spot_prices_of_a_region_are_its_own_and_come_with_a_warning() -> None:
    spot = Preference(commitment="spot")
    [median] = quote(load_gpu("h100"), spot).prices
    [here] = quote(load_gpu("h100"), Preference(commitment="spot", region="us-east-1")).prices
    assert (median.region, here.region) == ("median over regions", "us-east-1")
    assert here.usd_per_gpu_hour < median.usd_per_gpu_hour
    assert ["taken away" in doubt for doubt in warnings(here, TODAY)] == [True]


def test_a_commitment_of_a_year_comes_from_a_price_file_and_costs_less(
    mooncake: str, replays: Archive, write: Callable[[str, str], Path]
) -> None:
    path = write(
        "prices.csv",
        "gpu,usd_per_gpu_hour,source,date,kind\n"
        "h200,4.0,contract 7,2026-09-01,on-demand\nh200,2.5,contract 7,2026-09-01,1y\n",
    )

    def dollars(commitment: str) -> float:
        preference = Preference(file=path, commitment=commitment)
        asked = ask(mooncake, "h200", tensor_parallel_sizes=(4,), preference=preference)
        return plan(asked, keep=False, archive=replays).candidates[0].usd_per_hour

    assert dollars("1y") == pytest.approx(dollars("on-demand") * 2.5 / 4.0)


def test_prices_of_a_file_replace_those_of_the_catalog(write: Callable[[str, str], Path]) -> None:
    path = write(
        "prices.csv",
        "gpu,usd_per_gpu_hour,source,date,kind,gpus\nh200,2.5,contract 7,2025-01-01,1y,8\n",
    )
    quoted = quote(load_gpu("h200-sxm"), Preference(file=path, commitment="1y"))
    assert quoted.offers[0].usd_per_gpu_hour == 2.5
    assert quoted.offers[0].gpus == 8
    assert quoted.offers[0].name == "unnamed offer"
    assert "more than a year" in warnings(quoted.prices[0], TODAY)[0]
    assert "more than a year" not in str(warnings(quoted.prices[0], date(2025, 6, 1)))


@pytest.mark.parametrize("text", ["2025", "2025-01", "2025-01-01", "2025-01 (first list)"])
def test_a_price_is_as_old_as_the_first_day_that_its_date_names(
    write: Callable[[str, str], Path], text: str
) -> None:
    row = f"gpu,usd_per_gpu_hour,source,date\nh200,2,s,{text}\n"
    [price] = read_prices(write("prices.csv", row))
    assert not warnings(price, date(2025, 12, 31))
    assert f"is of {text}, more than a year" in warnings(price, date(2026, 1, 2))[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu,usd_per_gpu_hour,source\n", "column 'date' is missing"),
        ("gpu,usd_per_gpu_hour,source,date\nh200,-1,s,2026\n", ":2: usd_per_gpu_hour = '-1'"),
        ("gpu,usd_per_gpu_hour,source,date\nh200,nan,s,2026\n", ":2: usd_per_gpu_hour = 'nan'"),
        ("gpu,usd_per_gpu_hour,source,date\nh300,1,s,2026\n", ":2: gpu: unknown gpu 'h300'"),
        ("gpu,usd_per_gpu_hour,source,date,gpus\nh200,1,s,2026,some\n", ":2: gpus = 'some'"),
        ("gpu,usd_per_gpu_hour,source,date\nh200\n", ":2: usd_per_gpu_hour = ''"),
        ("gpu,usd_per_gpu_hour,source,date\nh200,1,s,2026-13\n", ":2: date = '2026-13': no such"),
        ("gpu,usd_per_gpu_hour,source,date\nh200,1,s,2026-02-30\n", ":2: date = '2026-02-30'"),
        ("gpu,usd_per_gpu_hour,source,date\nh200,1,s,0000-01\n", ":2: date = '0000-01'"),
        ("gpu,usd_per_gpu_hour,source,date\nh200,1,s,0000\n", ":2: date = '0000'"),
        ("gpu,usd_per_gpu_hour,source,date\nh200,1, ,2026\n", ":2: source is empty"),
        ("gpu,usd_per_gpu_hour,source,date\nh200,1,s,2026,x\n", ":2: has more cells than the 4"),
    ],
)
def test_a_bad_price_file_is_told_by_line_and_column(
    write: Callable[[str, str], Path], text: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        read_prices(write("prices.csv", text))


def test_the_cheaper_of_two_prices_wins_with_the_same_fleets(
    mooncake: str, replays: Archive
) -> None:
    def first(**cheap: float) -> str:
        said = tuple((load_gpu(name).name, usd) for name, usd in cheap.items())
        question = ask(
            mooncake,
            "h200",
            "h100",
            tensor_parallel_sizes=(4,),
            preference=Preference(gpu_prices=said),
        )
        best = plan(question, keep=False, archive=replays).candidates[0]
        return best.market.gpu.name

    assert first(h200=1.0, h100=30.0) == "H200-SXM-141GB"
    assert first(h200=30.0, h100=1.0) == "H100-SXM5-80GB"


def test_owned_hardware_is_paid_by_the_hour_of_use(mooncake: str, replays: Archive) -> None:
    owned = Owned(((None, 35_040.0),), years=4, utilisation=0.5)
    site = Electricity(usd_per_kwh=0.0, co2_grams_per_kwh=100)
    question = ask(mooncake, "h200", tensor_parallel_sizes=(4,), owned=owned, electricity=site)
    [best] = plan(question, keep=False, archive=replays).candidates
    assert best.usd_per_hour == pytest.approx(2.0 * best.fleet.bill.gpus_billed)
    assert best.energy is not None
    assert best.energy.co2_kg_per_month == pytest.approx(best.energy.kwh_per_month / 10)


def test_an_owned_fleet_that_stays_as_it_is_costs_the_same_whatever_else_changes(
    mooncake: str,
) -> None:
    few = Scenario(model="llama-3.1-8b", workload={"limit": 20})
    owned = Owned(((None, 10_000.0),))
    asked = ask(
        mooncake, "h200", scenario=few, tensor_parallel_sizes=(4,), owned=owned, explore=True
    )
    found = plan(asked)
    best = found.candidates[0]
    assert found.exploration is not None
    same = [one for one in found.exploration.effects if one.replicas == best.fleet.replicas]
    assert same
    for one in same:
        assert one.usd_per_month == pytest.approx(best.usd_per_month * one.case.price)


# Objectives.


def test_an_objective_without_a_statistic_asks_for_99_percent_of_requests() -> None:
    assert read_objective(["ttft=2s"]).attainment == 0.99
    assert read_objective(["ttft=2s"], 0.5).attainment == 0.5
    assert read_objective(["ttft_p99=2s"]).attainment is None


def test_a_percentile_also_limits_each_request_for_the_attainment_that_is_shown() -> None:
    objective = read_objective(["ttft_p50=1s", "ttft_p99=2s", "tpot_mean=50ms"])
    assert objective.limits == {"ttft": 2.0}
    assert [bound.key for bound in objective.bounds] == [
        "p50_ttft_ms",
        "p99_ttft_ms",
        "mean_tpot_ms",
    ]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([], "needs an objective"),
        (["itl=5ms"], "itl needs a statistic"),
        (["tftt=1s"], "did you mean 'ttft'"),
        (["ttft_p98=1s"], "unknown statistic 'p98'"),
        (["ttft=2"], "needs a unit"),
    ],
)
def test_an_objective_that_cannot_be_meant_is_refused(texts: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        read_objective(texts)


# What the reader gets.


@pytest.fixture(scope="module")
def explored(root: Path) -> Plan:
    """A small plan with all that a plan can have."""
    trace = str(root / "traces" / "mooncake.jsonl.gz")
    few = Scenario(model="llama-3.1-8b", workload={"limit": 400})
    return plan(ask(trace, "h200", "l4", scenario=few, explore=True, tensor_parallel_sizes=(4,)))


@pytest.mark.parametrize(
    ("said", "needed", "text"),
    [
        (16, 16, "; as many are needed"),
        (16, 17, "; needed: 17, 1 more"),
        (4, 16, "; needed: 16, 12 more"),
        (4, 2, "; needed: 2, 2 fewer"),
        (4, None, ""),
    ],
)
def test_what_is_needed_reads_well_next_to_what_means_say(
    said: int, needed: int | None, text: str
) -> None:
    assert beside(said, needed) == text


def test_the_command_lines_carry_the_limits_of_the_plan(explored: Plan) -> None:
    best = explored.candidates[0]
    line = shlex.split(best.commands.vllm)
    flags = dict(zip(line[3::2], line[4::2], strict=False))
    assert line[:2] == ["vllm", "serve"]
    assert flags["--tensor-parallel-size"] == "4"
    assert flags["--max-num-batched-tokens"] == "8192"
    sglang = shlex.split(best.commands.sglang)
    share = float(sglang[sglang.index("--mem-fraction-static") + 1])
    assert 0.8 < share < 0.92


def test_cases_of_the_sensitivity_lie_around_the_answer(explored: Plan) -> None:
    assert explored.exploration is not None
    effects = explored.exploration.effects
    factors = Counter(effect.case.factor for effect in effects)
    assert factors == {"traffic": 4, "answers": 2, "calibration": 2, "price": 2}
    now = explored.candidates[0].fleet.replicas
    for factor, count in factors.items():
        of_it = [effect.replicas for effect in effects if effect.case.factor == factor]
        for low in of_it[: count // 2]:
            assert low is not None
            assert low <= now
        for high in of_it[count // 2 :]:
            assert high is None or now <= high  # none: no fleet is fast enough
    assert any(effect.replicas is not None for effect in effects[2:4])


# The command.


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))


def test_the_command_goes_without_a_cache_that_cannot_be_used(
    capsys: pytest.CaptureFixture[str], mooncake: str, write: Callable[[str, str], Path]
) -> None:
    occupied = write("user", "a file, not a folder")
    arguments = ["plan", mooncake, "--gpu", "h200", "--quick", "--jobs", "1"]
    arguments += ["--slo", "ttft_p99=5ms"]
    assert run(arguments) == 5
    note, *error = capsys.readouterr().err.splitlines()
    assert "kvsim: note: replays are not remembered" in note
    assert len(error) == 1
    assert run([*arguments, "--cache", str(occupied)]) == 2
    assert run([*arguments, "--no-cache"]) == 5


def test_the_command_prints_a_plan_as_json(
    capsys: pytest.CaptureFixture[str], mooncake: str
) -> None:
    arguments = ["plan", mooncake, "--model", "llama-3.1-8b", "--gpu", "h200", "--quick", "--json"]
    arguments += ["--slo", "ttft_p99=1s", "--tensor-parallel-size", "4", "--jobs", "1"]
    assert run([*arguments, "--gpu-price", "2.10", "--as-of", "2026-11-29"]) == 0
    shown = json.loads(capsys.readouterr().out)
    best = shown["answer"]
    assert best["usd_per_hour"] == pytest.approx(2.10 * best["gpus"])
    assert best["usd_per_month"] == pytest.approx(best["usd_per_hour"] * 730)
    assert best["p99_ttft_ms"] <= 1000
    assert best["by_means"]["needed_by_said"] == best["gpus"] / best["by_means"]["gpus"]


@pytest.mark.parametrize(
    ("flags", "objective"),
    [
        (["--goodput", "ttft:1000"], "99% of requests with TTFT <= 1 s"),
        (
            ["--slo", "ttft_p99=1s", "--goodput", "tpot:30"],
            "TTFT p99 <= 1 s; 99% of requests with TTFT <= 1 s and TPOT <= 30 ms",
        ),
    ],
)
def test_objectives_of_both_flags_are_asked_for(
    capsys: pytest.CaptureFixture[str], mooncake: str, flags: list[str], objective: str
) -> None:
    arguments = ["plan", mooncake, "--limit", "50", "--gpu", "h200", "--quick", "--jobs", "1"]
    run([*arguments, "--model", "llama-3.1-8b", "--tensor-parallel-size", "4", *flags, "--json"])
    assert "; ".join(json.loads(capsys.readouterr().out)["objective"]) == objective


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (["--gpu", "h200", "--slo", "ttft_p99=5ms"], 5, "even on an idle engine"),
        (
            ["--gpu", "l4", "--model", "llama-3-70b", "--tensor-parallel-size", "1"],
            4,
            "does not fit",
        ),
        (["--gpu", "h201"], 2, "did you mean"),
        (["--gpu", ","], 2, "names nothing"),
        (["--tensor-parallel-size", "two"], 2, "whole numbers"),
        (["--headroom", "-1"], 2, "--headroom -1"),
        (["--attainment", "1.5"], 2, "--attainment 1.5"),
        (["--report", "plan.doc"], 2, "must end in"),
        (["--capex", "l4=9000"], 2, "--capex L4-24GB=9000: the plan does not ask about that GPU"),
        (["--gpu-price", "l4=1"], 2, "--gpu-price L4-24GB=1: the plan does not ask"),
        (["--gpu-price", "1e300"], 2, "--gpu-price 1e300"),
        (["--request-rate", "inf"], 2, "all requests arrive at once"),
        (["--gpu-price", "free"], 2, "--gpu-price free"),
        (["--years", "3"], 2, "mean nothing without --capex"),
        (["--staff", "900"], 2, "mean nothing without --capex"),
        (["--capex", "9000", "--years", "0"], 2, "--years 0"),
        (["--commitment", ""], 2, "--commitment is empty"),
        (["--region", " "], 2, "--region is empty"),
        (["--as-of", "2020-01-01"], 2, "in the catalog by 2020-01-01; known: "),
        (["--as-of", "yesterday"], 2, "--as-of yesterday"),
    ],
)
def test_a_mistake_is_one_line_with_its_exit_code(
    capsys: pytest.CaptureFixture[str], mooncake: str, flags: list[str], code: int, said: str
) -> None:
    base = ["plan", mooncake, "--quick", "--jobs", "1", "--max-gpus", "8"]
    slo = [] if "--slo" in flags else ["--slo", "ttft_p99=2s"]
    assert run([*base, *slo, *flags]) == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error


def test_a_limit_of_gpus_is_blamed_only_where_no_replica_stays_within_it(mooncake: str) -> None:
    def said(*sizes: int) -> str:
        crowd = Scenario(workload={"limit": 50, "request_rate": 100})
        asked = ask(
            mooncake,
            "h200",
            max_gpus=1,
            tensor_parallel_sizes=sizes,
            scenario=crowd,
            objective=read_objective(["ttft_p50=1s"]),
        )
        return plan(asked).refused[0].reason

    assert said(1, 8) == "not met with 1 GPUs, 1 replicas of TP 1"
    assert said(8) == "a replica of TP 8 has more GPUs than --max-gpus 1"


def test_a_model_that_fits_nowhere_is_a_mistake_and_elsewhere_a_remark(mooncake: str) -> None:
    large = Scenario(model="llama-3-70b", workload={"limit": 50})
    lenient = read_objective(["ttft_p50=60s"])
    both = ask(
        mooncake, "l4", "h200", tensor_parallel_sizes=(2,), scenario=large, objective=lenient
    )
    found = plan(both)
    assert [each.market.gpu.name for each in found.candidates] == ["H200-SXM-141GB"]
    assert "does not fit" in found.refused[0].reason
    with pytest.raises(CapacityError, match="does not fit"):
        plan(ask(mooncake, "l4", tensor_parallel_sizes=(2,), scenario=large))


def test_equal_questions_have_equal_hashes_and_others_do_not(mooncake: str) -> None:
    one, same, other = (
        ask(mooncake, "h200"),
        ask(mooncake, "h200"),
        ask(mooncake, "h200", headroom=0.1),
    )
    assert one.hash("s") == same.hash("s") != other.hash("s")
    assert one.hash("s") != one.hash("t")
