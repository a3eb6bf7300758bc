"""How far a plan's fleet is from its limits, and whether it holds when the world is worse."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from datetime import date
from pathlib import Path

import pytest

from kvsim.cli.app import run
from kvsim.planning import Plan, Question, plan
from kvsim.planning.document import document
from kvsim.planning.margins import Reading, Standing, reading, table
from kvsim.planning.objective import Demand, read_objective
from kvsim.planning.pool import Lab
from kvsim.planning.search import Bench, Placement
from kvsim.planning.show import verdict
from kvsim.planning.trial import Change, Outcome, Trial
from kvsim.reporting.plan_charts import tornado
from kvsim.reporting.plan_data import PlanData, read_plan
from kvsim.reporting.plan_screen import nearest
from kvsim.reporting.plans import of_plan
from kvsim.scenario import Scenario

TARGETS = ["ttft_p99=1s", "tpot_p99=30ms", "ttft=2s"]
HEADROOM = 0.25
SERVED = {"num_rejected": 0, "completed": 100}


@pytest.fixture(scope="module")
def planned(root: Path) -> Plan:
    """A plan with headroom, whose engine may be a lot slower than it is taken to be."""
    return plan(
        Question(
            Scenario(model="llama-3.1-8b", workload={"limit": 300}),
            str(root / "traces" / "mooncake.jsonl.gz"),
            ("h200",),
            read_objective(TARGETS),
            as_of=date(2026, 11, 29),
            tensor_parallel_sizes=(4,),
            token_budgets=(None,),
            headroom=HEADROOM,
            calibration=0.4,
        )
    )


@pytest.fixture(scope="module")
def told(planned: Plan) -> PlanData:
    """The same plan as a report reads it."""
    return read_plan(json.loads(json.dumps(document(planned, "kvsim plan"))), "plan.json")


def standings(planned: Plan) -> tuple[Standing, ...]:
    assert planned.exploration is not None
    return planned.exploration.standings


def world(**summary: object) -> Outcome:
    return Outcome(True, 0.996, {**SERVED, **summary})


# What is left of what is allowed.


def test_a_margin_is_what_is_left_of_the_time_or_of_the_misses_that_are_allowed() -> None:
    ttft = Demand("TTFT p99", "ms", 2000, "p99_ttft_ms")
    assert reading(ttft, "", world(p99_ttft_ms=1500.0)) == Reading("", 1500, 0.25, met=True)
    assert reading(ttft, "", world(p99_ttft_ms=2500.0)) == Reading("", 2500, -0.25, met=False)
    good = Demand("requests within all limits", "share", 0.99, least=True)
    found = reading(good, "", world())
    assert found.met
    assert found.margin == pytest.approx(0.6)
    refused = Demand("requests refused", "share", 0.01)
    seen = reading(refused, "", world(num_rejected=5, completed=95))
    assert (seen.value, seen.met) == (0.05, False)
    assert seen.margin == pytest.approx(-4)


def test_a_limit_that_allows_no_miss_and_a_latency_that_nobody_has_have_readings_too() -> None:
    every = Demand("requests within all limits", "share", 1.0, least=True)
    assert reading(every, "", Outcome(True, 1.0, SERVED)) == Reading("", 1.0, 0.0, met=True)
    missed = reading(every, "", world())
    assert not missed.met
    assert missed.margin == pytest.approx(-0.004)
    exact = Demand("requests within all limits", "share", 0.95, least=True)
    assert str(exact.margin(0.95)) == "0.0"  # and not the dust of 1 - 0.95, shown as -0 %
    allowed = Demand("requests refused", "share", read_objective(["ttft=1s"], 0.9995).rejections_allowed)  # fmt: skip
    assert allowed.met(1 / 2000)
    tpot = Demand("TPOT p99", "ms", 50, "p99_tpot_ms")
    assert reading(tpot, "", world()) == Reading("", None, None, met=True)


def test_every_part_of_an_objective_is_a_demand() -> None:
    found = list(read_objective([*TARGETS, "itl_mean=9ms"], 0.9).demands)
    assert [(one.name, one.limit) for one in found] == [
        ("TTFT p99", 1000),
        ("TPOT p99", 30),
        ("ITL mean", pytest.approx(9)),
        ("requests within all limits", 0.9),
        ("requests refused", pytest.approx(0.01)),
    ]
    names = [one.name for one in read_objective(["ttft_p99=1s"]).demands]
    assert names == ["TTFT p99", "requests refused"]


# Of a plan.


def test_values_are_those_of_replays_of_the_recommended_fleet_in_each_world(planned: Plan) -> None:
    assert planned.exploration is not None
    fleet, question = planned.candidates[0].fleet, planned.question
    bench = Bench(question.scenario, question.trace, planned.traffic.requests, question.objective)
    worlds = {
        "as asked": Change(1 + HEADROOM),
        "traffic +10%": Change(1.1 * (1 + HEADROOM)),
        "traffic +20%": Change(1.2 * (1 + HEADROOM)),
        "engine 40% slower than modelled": Change(1 + HEADROOM, 1.0, 1.4),
    }
    found = standings(planned)
    assert [one.objective for one in found] == [
        "TTFT p99",
        "TPOT p99",
        "requests within all limits",
    ]
    for index, (case, change) in enumerate(worlds.items()):
        outcome = bench.trial(fleet.placement, fleet.replicas, change, whole=True).run()
        readings = [one.readings[index] for one in found]
        assert {reading.case for reading in readings} == {case}
        summary = outcome.summary
        assert summary is not None
        wanted = [summary["p99_ttft_ms"], summary["p99_tpot_ms"], outcome.attainment]
        assert [reading.value for reading in readings] == pytest.approx(wanted)
        assert all(reading.met for reading in readings) == outcome.met


def test_the_fleet_holds_in_a_case_if_and_only_if_no_more_replicas_are_needed(
    planned: Plan,
) -> None:
    assert planned.exploration is not None
    readings = zip(*(one.readings for one in standings(planned)), strict=True)
    held = {world[0].case: all(reading.met for reading in world) for world in readings}
    assert held.pop("as asked")
    assert not held["engine 40% slower than modelled"]
    for effect in planned.exploration.effects:
        assert effect.holds == held.get(effect.case.label, effect.holds)
        assert effect.holds or effect.changes
        if effect.case.factor == "price":
            assert effect.holds
    said = {effect.holds: verdict(effect, planned) for effect in planned.exploration.effects}
    assert said[False] in ("more are needed", "nothing up to 128 GPUs is enough")


def test_the_answer_in_text_json_and_report_says_how_far_each_objective_is(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["plan", str(root / "traces" / "mooncake.jsonl.gz"), "--limit", "200", "--jobs", "1"]
    command += ["--model", "llama-3.1-8b", "--gpu", "h200", "--tensor-parallel-size", "4"]
    command += ["--cache", str(tmp_path / "cache"), "--calibration-error", "0.1"]
    command += ["--slo", "ttft_p99=1.5s", "--slo", "tpot=50ms"]
    report, page = tmp_path / "plan.md", tmp_path / "plan.html"
    assert run([*command, "--report", str(report), "--report", str(page)]) == 0
    text = capsys.readouterr().out
    assert run([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["exploration"]
    assert [one["objective"] for one in found["objectives"]] == [
        "TTFT p99",
        "requests within all limits",
    ]
    cases = [reading["case"] for reading in found["objectives"][0]["readings"]]
    assert cases == [
        "as asked",
        "traffic +10%",
        "traffic +20%",
        "engine 10% slower than modelled",
    ]
    margin = found["objectives"][0]["readings"][0]["margin"]
    for said in (text, report.read_text(), page.read_text()):
        for part in ("TTFT p99", "1.5 s", f"{margin:.1%}", "engine 10% slower", "holds"):
            assert part in said
    assert {one["case"]: one["recommended_fleet_holds"] for one in found["sensitivity"]}[
        "traffic -10%"
    ]


def test_a_reader_sees_what_is_missed_and_where(told: PlanData) -> None:
    assert told.exploration is not None
    titles, rows = table(told.exploration.objectives)
    assert titles == [
        "objective", "limit", "value", "margin", "traffic +10%", "traffic +20%", "engine 40% slower",
    ]  # fmt: skip
    assert rows[-1].objective == "recommended fleet"
    assert rows[-1].value == "holds"
    assert rows[-1].cases[-1] == "misses"
    assert any(row.cases[-1].endswith("(missed)") for row in rows[:-1])
    assert "(missed) if: engine 40% slower than modelled" in nearest(told.exploration.objectives)


def test_a_latency_that_nobody_has_is_never_the_nearest_to_its_limit() -> None:
    absent = Standing("TPOT p99", "ms", 50, (Reading("as asked", None, None, met=True),))
    near = Standing("TTFT p99", "ms", 1000, (Reading("as asked", 900, 0.1, met=True),))
    assert nearest([absent, near]) == (
        "Nearest to its limit: time to first token p99, 900 ms of 1 s. "
    )
    assert nearest([absent]) == nearest([]) == ""
    _, [row, *_] = table([absent])
    assert (row.value, row.margin) == ("-", None)


def test_a_plan_of_before_margins_were_told_is_read_and_reported(planned: Plan) -> None:
    old = json.loads(json.dumps(document(planned, "kvsim plan")))
    del old["exploration"]["objectives"]
    for effect in old["exploration"]["sensitivity"]:
        del effect["recommended_fleet_holds"]
    read = read_plan(old, "plan.json")
    titles = [section.title for section in of_plan(read, None).sections]
    assert "Sensitivity" in titles
    assert "How far from each limit" not in titles


def test_what_is_drawn_of_a_factor_is_its_widest_swing(told: PlanData) -> None:
    assert told.exploration is not None
    assert told.best is not None
    swings = tornado(told, told.best, told.exploration).swings
    assert {swing.label for swing in swings} == {
        "traffic ±20%",
        "length of answers ±20%",
        "engine's speed ±40%",
        "price ±20%",
    }


def test_what_a_whole_replay_has_shown_is_not_replayed_again_to_be_stopped(planned: Plan) -> None:
    question = planned.question
    bench = Bench(question.scenario, question.trace, planned.traffic.requests, question.objective)
    where = Placement("h200", 4, None)

    def asked(*wanted: Trial) -> Generator[Sequence[Trial], list[Outcome], list[Outcome]]:
        return (yield list(wanted))

    with Lab(1) as lab:
        [[whole]] = lab.run([asked(bench.trial(where, 1, whole=True))])
        [[again, other]] = lab.run([asked(bench.trial(where, 1), bench.trial(where, 2))])
        assert again is whole
        assert other is not whole
        assert lab.trials == 2
