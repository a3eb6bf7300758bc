"""Sweeps as their user meets them: what varies, what comes out, and what is said about mistakes."""

from __future__ import annotations

import csv
import json
import math
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.cli.app import run
from kvsim.errors import ConfigError, TraceError
from kvsim.scenario import Scenario
from kvsim.sweeping.configuration import Key, configurations
from kvsim.sweeping.drive import sweep
from kvsim.sweeping.ledger import LEASE, Entry, Ledger
from kvsim.sweeping.local import LocalWorkers
from kvsim.sweeping.matrix import points
from kvsim.sweeping.owner import Owner
from kvsim.sweeping.results import Metric, Row, pareto
from kvsim.sweeping.spec import parse_spec, read_spec

ROOT = Path(__file__).resolve().parent.parent
ROW = '{{"arrival": {0}, "prompt_tokens": {1}, "output_tokens": 20, "hash_ids": [0, {2}]}}\n'
SPEC = """
trace = "few.jsonl"

[scenario]
slo = ["ttft=2s", "tpot=50ms"]

[grid]
allocator = ["paged", {name = "contiguous", fit = "best"}]
"workload.request_rate" = [5, 50]

[[zip]]
gpu = ["h200", "a100-80gb"]
tensor_parallel_size = [1, 2]
"""


@pytest.fixture(autouse=True)
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Forty requests in the working folder, which is the test's own."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "few.jsonl"
    path.write_text("".join(ROW.format(n / 20, 700 + n, n + 1) for n in range(40)))
    return path


@pytest.fixture
def spec(write) -> str:
    return str(write("spec.toml", SPEC))


def output(capsys, *arguments: str, code: int = 0) -> str:
    """What a command prints to stdout; it must end with ``code`` and complain only if it fails."""
    assert run(["sweep", *arguments]) == code
    printed = capsys.readouterr()
    assert bool(printed.err) is bool(code)
    return printed.out


def settings_of(spec_table: dict) -> list[dict]:
    return list(points(parse_spec({"trace": "few.jsonl", **spec_table})))


# What varies.


def test_the_parts_of_a_spec_combine_and_the_lists_of_a_zip_advance_together() -> None:
    found = settings_of(
        {
            "grid": {"block_size": [16, 32]},
            "zip": [{"gpu": ["h200", "h100-sxm"], "replicas": [1, 2]}],
            "samples": {"count": 3, "over": {"watermark": {"low": 0.0, "high": 0.5}}},
        }
    )
    assert len(found) == 2 * 2 * 3
    assert {(point["gpu"], point["replicas"]) for point in found} == {("h200", 1), ("h100-sxm", 2)}
    assert [point["block_size"] for point in found] == [16] * 6 + [32] * 6
    assert len({point["watermark"] for point in found}) == 3


@given(
    seed=st.integers(0, 1000),
    count=st.integers(1, 40),
    low=st.integers(1, 50),
    width=st.integers(1, 500),
    log=st.booleans(),
)
def test_samples_stay_in_their_spans_and_depend_only_on_the_seed(
    seed, count, low, width, log
) -> None:
    span = {"low": low, "high": low + width, "log": log}
    over = {"max_num_seqs": span, "watermark": {**span, "low": float(low)}, "gpu": ["h200", "l40s"]}
    table = {"samples": {"count": count, "seed": seed, "over": over}}
    found = settings_of(table)
    assert found == settings_of(table)
    assert len(found) == count
    for point in found:
        assert isinstance(point["max_num_seqs"], int)
        assert low <= point["max_num_seqs"] <= low + width
        assert low <= point["watermark"] <= low + width
        assert point["gpu"] in ("h200", "l40s")


def test_whole_numbers_are_drawn_with_both_ends() -> None:
    over = {"replicas": {"low": 1, "high": 3}, "block_size": {"low": 1, "high": 2, "log": True}}
    found = settings_of({"samples": {"count": 100, "over": over}})
    assert {point["replicas"] for point in found} == {1, 2, 3}
    assert {point["block_size"] for point in found} == {1, 2}


def test_a_latin_hypercube_has_one_sample_in_every_slice() -> None:
    over = {"watermark": {"low": 0.0, "high": 1.0}, "replicas": {"low": 0, "high": 19}}
    found = settings_of({"samples": {"count": 20, "method": "latin-hypercube", "over": over}})
    assert sorted(math.floor(point["watermark"] * 20) for point in found) == list(range(20))
    assert sorted(point["replicas"] for point in found) == list(range(20))


def test_options_of_plug_ins_and_of_the_workload_vary_over_what_stays() -> None:
    table = {
        "trace": "few.jsonl",
        "scenario": {
            "allocator": {"name": "contiguous", "block_size": 8},
            "workload": {"limit": 9, "arrival": "poisson"},
        },
        "grid": {"allocator.fit": ["best", "first"], "workload.limit": [3], "block_size": [32]},
    }
    scenarios = [made.scenario for made in configurations(parse_spec(table))]
    assert [one.allocator.options for one in scenarios] == [{"fit": "best"}, {"fit": "first"}]
    assert {one.allocator.name for one in scenarios} == {"contiguous"}
    assert {(one.workload.limit, one.workload.arrival) for one in scenarios} == {(3, "poisson")}
    assert {one.block_size for one in scenarios} == {32}


def test_an_option_is_set_after_its_plug_in_whatever_comes_first_in_the_file() -> None:
    grid = {"allocator.fit": ["best"], "allocator": ["contiguous"]}
    made = configurations(parse_spec({"trace": "few.jsonl", "grid": grid}))
    assert made[0].scenario.allocator.options == {"fit": "best"}


def test_what_stays_can_be_a_scenario_file(write) -> None:
    write("base.toml", 'gpu = "l40s"\n[workload]\nlimit = 4\n')
    table = {"trace": "few.jsonl", "scenario": "base.toml", "grid": {"workload.sort": [True]}}
    [made] = configurations(parse_spec(table))
    assert made.scenario == Scenario(gpu="l40s", workload={"limit": 4, "sort": True})


def test_traces_vary_and_configurations_that_say_the_same_are_one(trace) -> None:
    Path("copy.jsonl").write_bytes(trace.read_bytes())
    Path("other.jsonl").write_text(ROW.format(0, 900, 1))
    grid = {"trace": ["few.jsonl", "copy.jsonl", "other.jsonl"], "block_size": [16, 16, 32]}
    found = configurations(parse_spec({"grid": grid}))
    assert [Path(made.trace).name for made in found] == ["few.jsonl"] * 2 + ["other.jsonl"] * 2
    assert len({made.key for made in found}) == 4


# What comes out.


def test_results_are_the_same_for_any_number_of_jobs_and_those_of_a_replay(capsys, spec) -> None:
    alone = output(capsys, spec, "--out", "alone", "--jobs", "1", "--json")
    assert output(capsys, spec, "--out", "three", "--jobs", "3", "--json") == alone
    assert output(capsys, "show", "three", "--json") == alone
    rows = json.loads(alone)
    assert [row["configuration"] for row in rows] == list(range(1, 9))
    assert {row["status"] for row in rows} == {"done"}
    point = rows[3]["settings"]
    assert point == {
        "allocator": "paged",
        "workload.request_rate": 50,
        "gpu": "a100-80gb",
        "tensor_parallel_size": 2,
    }
    flags = (
        "--request-rate 50 --gpu a100-80gb --tensor-parallel-size 2 --slo ttft=2s --slo tpot=50ms"
    )
    assert run(["replay", "few.jsonl", "--json", *flags.split()]) == 0
    replayed = json.loads(capsys.readouterr().out)
    del replayed["kv_memory"]
    assert replayed.items() <= rows[3]["metrics"].items()
    assert rows[3]["metrics"]["num_gpus"] == 2


def test_csv_has_a_column_for_every_setting_and_metric_and_computes_nothing(capsys, write) -> None:
    write("=1+1.jsonl", ROW.format(0, 900, 1))
    path = write("s.toml", '[grid]\ntrace = ["=1+1.jsonl"]\nwatermark = [0.0, 0.1]\n')
    text = output(capsys, str(path), "--out", "out", "--format", "csv")
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["watermark"] for row in rows] == ["0.0", "0.1"]
    assert rows[0]["trace"] == "'=1+1.jsonl"
    assert float(rows[0]["p99_ttft_ms"]) > 0


def test_the_best_comes_first_and_a_metric_of_no_plain_direction_needs_one(capsys, spec) -> None:
    output(capsys, spec, "--out", "out")
    rows = json.loads(output(capsys, "show", "out", "--best", "p99_ttft_ms", "--json"))
    times = [row["metrics"]["p99_ttft_ms"] for row in rows]
    assert times == sorted(times)
    rows = json.loads(output(capsys, "show", "out", "--best", "max:busy_fraction", "--json"))
    busy = [row["metrics"]["busy_fraction"] for row in rows]
    assert busy == sorted(busy, reverse=True)
    table = output(capsys, "show", "out", "--pareto", "p99_ttft_ms,output_throughput_per_gpu")
    assert "h200" in table
    assert "a100-80gb" not in table


LEVELS = st.integers(0, 4)


@given(st.lists(st.tuples(LEVELS, LEVELS, LEVELS), max_size=30))
def test_the_pareto_set_is_what_nothing_beats(values) -> None:
    entry = Entry(0, Key("", ""), {}, {}, "", "done", None, None)
    rows = [Row(entry, {"a": a, "b": b, "c": c}) for a, b, c in values]
    chosen = pareto(rows, [Metric("a", 1), Metric("b", -1), Metric("c", 1)])

    def beats(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
        pairs = [(one[0], other[0]), (-one[1], -other[1]), (one[2], other[2])]
        return all(x >= y for x, y in pairs) and any(x > y for x, y in pairs)

    expected = [value for value in values if not any(beats(other, value) for other in values)]
    found = [(row.metrics["a"], row.metrics["b"], row.metrics["c"]) for row in chosen]
    assert sorted(found) == sorted(expected)


def test_a_dry_run_lists_the_configurations_and_writes_nothing(capsys, spec, tmp_path) -> None:
    before = sorted(tmp_path.iterdir())
    printed = output(capsys, spec, "--dry-run", "--out", "out")
    assert "8 configurations" in printed
    assert "contiguous(fit=best)" in printed
    assert output(capsys, "run", spec, "--dry-run") == printed
    assert sorted(tmp_path.iterdir()) == before


def test_a_model_that_does_not_fit_fails_alone(capsys, write) -> None:
    path = write("s.toml", 'trace = "few.jsonl"\n[grid]\nmodel = ["llama-3-70b", "llama-3-8b"]\n')
    printed = output(capsys, str(path), "--out", "out", "--continue-on-error", code=1)
    assert "configuration 1 (model = llama-3-70b) failed: " in printed
    assert "does not fit" in printed
    [failed, done] = json.loads(output(capsys, "show", "out", "--json"))
    assert (failed["status"], failed["metrics"], done["status"]) == ("failed", None, "done")
    assert run(["sweep", str(path), "--out", "other", "--jobs", "1"]) == 4
    assert capsys.readouterr().err.startswith(
        "kvsim: error: configuration 1 (model = llama-3-70b): "
    )


def test_runs_are_kept_where_they_are_wanted(capsys, spec) -> None:
    rows = json.loads(output(capsys, spec, "--out", "out", "--keep-runs", "--json"))
    runs = sorted(Path("out/runs").iterdir())
    assert len(runs) == len(rows) == 8
    assert run(["compare", *map(str, runs), "--format", "csv"]) == 0
    found = {row["p99_ttft_ms"] for row in csv.DictReader(capsys.readouterr().out.splitlines())}
    assert found == {str(row["metrics"]["p99_ttft_ms"]) for row in rows}


# Going on.


def test_a_finished_sweep_is_not_run_again_and_grows_with_its_spec(capsys, spec, write) -> None:
    first = json.loads(output(capsys, spec, "--out", "out", "--json"))
    with sqlite3.connect("out/sweep.sqlite") as ledger:
        ledger.execute(
            "CREATE TRIGGER once BEFORE UPDATE OF result ON configurations "
            "WHEN old.result IS NOT NULL BEGIN SELECT raise(ABORT, 'run twice'); END"
        )
    assert json.loads(output(capsys, spec, "--out", "out", "--resume", "--json")) == first
    more = write("more.toml", SPEC.replace("[5, 50]", "[50, 500]"))
    grown = json.loads(output(capsys, str(more), "--out", "out", "--resume", "--json"))
    rates = [row["settings"]["workload.request_rate"] for row in grown]
    assert rates == [50, 50, 500, 500] * 2
    assert grown[0]["metrics"] == first[2]["metrics"]


def test_another_sweep_does_not_mix_with_one_that_is_there(capsys, spec, write) -> None:
    output(capsys, spec, "--out", "out")
    assert run(["sweep", spec, "--out", "out"]) == 2
    assert "8 of 8 done; --resume" in capsys.readouterr().err
    with sqlite3.connect("out/sweep.sqlite") as ledger:
        ledger.execute("UPDATE configurations SET kvsim_version = '0.0.1'")
    assert run(["sweep", spec, "--out", "out", "--resume"]) == 2
    assert "made by kvsim 0.0.1" in capsys.readouterr().err
    with sqlite3.connect("out/sweep.sqlite") as ledger:
        ledger.execute("PRAGMA user_version = 9")
    assert run(["sweep", "show", "out"]) == 2
    assert "a ledger of schema 9; this kvsim reads 1" in capsys.readouterr().err


def begun(stage: str) -> None:
    """What a sweep leaves in ``out`` that was ended before it had a configuration."""
    if stage == "file":
        Path("out").mkdir()
        Path("out/sweep.sqlite").touch()
    elif stage == "header":
        Path("out").mkdir()
        with closing(sqlite3.connect("out/sweep.sqlite")) as ledger:
            ledger.execute("PRAGMA journal_mode = WAL")
    else:
        Ledger.create(Path("out")).close()


@pytest.mark.parametrize("stage", ["file", "header", "tables"])
def test_a_sweep_that_ended_before_it_began_is_the_same_to_all_and_resumes(
    capsys, write, stage
) -> None:
    begun(stage)
    small = write("small.toml", "trace = 'few.jsonl'\n[grid]\nblock_size = [16]\n")
    commands = ("sweep show out", f"sweep {small} --out out", "report out --out report.html")
    for command in commands:
        assert run(command.split()) == 2
        said = "out/sweep.sqlite: a sweep that ended before it began; --resume begins it"
        assert capsys.readouterr().err == f"kvsim: error: {said}\n"
    [row] = json.loads(output(capsys, str(small), "--out", "out", "--resume", "--json"))
    assert row["status"] == "done"


def test_a_trace_that_changes_under_a_sweep_gives_no_result(trace) -> None:
    spec = parse_spec({"trace": "few.jsonl", "grid": {"block_size": [16]}})
    matrix = configurations(spec)
    trace.write_text(ROW.format(0, 900, 1))
    with pytest.raises(TraceError, match="has changed since the sweep began"):
        sweep(matrix, Path("out"), LocalWorkers(1))


# Leases.


@pytest.fixture
def ledger(tmp_path):
    table = {"trace": "few.jsonl", "grid": {"block_size": [16, 32]}}
    with Ledger.create(tmp_path / "out") as ledger:
        ledger.enrol(configurations(parse_spec(table)))
        yield ledger


HERE = Owner.this_process()
ELSEWHERE = Owner("another-host", 1, "a")


def test_two_owners_never_hold_the_same_configuration(ledger) -> None:
    one, two = ledger.claim(HERE, 0), ledger.claim(ELSEWHERE, 0)
    assert one.key != two.key
    assert ledger.claim(HERE, 0) is None
    assert ledger.counts()[:2] == (0, 2)


def test_a_lease_holds_as_long_as_its_owner_gives_heartbeats(ledger) -> None:
    lease = ledger.claim(ELSEWHERE, 0)
    ledger.heartbeat(ELSEWHERE, LEASE)
    assert ledger.reclaim(1.9 * LEASE) == 0
    assert ledger.reclaim(2.1 * LEASE) == 1
    assert ledger.claim(HERE, 2.1 * LEASE).key == lease.key


def test_the_lease_of_a_process_that_is_gone_is_free_at_once(ledger) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    ledger.claim(HERE._replace(pid=gone.pid), 0)
    ledger.claim(HERE, 0)
    assert ledger.reclaim(1) == 1


def test_who_has_lost_a_lease_cannot_record_a_result(ledger) -> None:
    lease = ledger.claim(ELSEWHERE, 0)
    ledger.reclaim(2 * LEASE)
    assert ledger.claim(HERE, 2 * LEASE).key == lease.key
    assert not ledger.finish(lease.key, ELSEWHERE, b"{}")
    assert not ledger.fail(lease.key, ELSEWHERE, "late", 1)
    assert ledger.finish(lease.key, HERE, b"{}")
    assert not ledger.finish(lease.key, HERE, b'{"again": 1}')


# Mistakes.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nothing varies; accepted: at least one of [grid], [[zip]], [samples]"),
        ("[gird]\nblock_size = [1]", "unknown key 'gird'; did you mean 'grid'?"),
        ("[grid]\nblock_size = []", "grid.block_size = []: must not be empty"),
        ("[grid]\nblock_size = 16", "grid.block_size = 16: must be a list of values"),
        ("[grid]\nblok_size = [1]", "configuration 1 (blok_size = 1): unknown setting 'blok_size'"),
        ("[grid]\nblock_size = [16, 0]", "configuration 2 (block_size = 0): --block-size = 0"),
        ('[grid]\n"allocator.fitt" = ["a"]', "allocator paged: unknown option 'fitt'"),
        ('[grid]\n"workload.lmit" = [1]', "did you mean 'limit'?"),
        ('[grid]\ngpu = ["h2000"]', "did you mean 'h200'?"),
        ('[grid]\ntrace = ["-"]', "cannot be standard input"),
        ('[[zip]]\ngpu = ["h200"]\nreplicas = [1, 2]', "gpu has 1, replicas has 2"),
        ("[grid]\nreplicas = [1]\n[zip]\nreplicas = [2]", "replicas varies twice, in grid and in"),
        ("[samples]\ncount = 3", "samples.over: is missing"),
        ("[samples]\ncount = 3\n[samples.over]\nwatermark = 3", "must be a list of values, or"),
        ("[samples]\ncount = 3\n[samples.over]\nseed = {low = 2, high = 1}", "must be less than"),
        ("[grid\n", "at line 2"),
        (
            "[grid]\nblock_size = [1]\nreplicas = [2]\nseed = [3]\n[samples]\ncount = 100_001\n"
            "[samples.over]\nwatermark = [0.1]",
            "100,001 configurations; accepted: at most 100,000",
        ),
    ],
)
def test_a_mistake_in_a_spec_is_one_line_before_anything_runs(
    capsys, write, tmp_path, text, message
) -> None:
    path = write("s.toml", f'trace = "few.jsonl"\n{text}\n')
    assert run(["sweep", str(path), "--out", "out"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith(f"kvsim: error: {path}: ")
    assert message in printed.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("none.toml --out out", 2, "No such file"),
        ("SPEC", 2, "--out DIR is missing"),
        ("SPEC --out few.jsonl", 2, "exists and is not a folder"),
        ("SPEC --out .", 2, "is not empty and not a sweep"),
        ("SPEC --out out --ray-address x", 2, "means nothing without --backend ray"),
        ("SPEC --jbos 2", 2, "did you mean --jobs?"),
        ("SPEC --out out --jobs 0", 2, "--jobs"),
        ("show nowhere", 2, "holds no sweep"),
        ("show broken", 2, "cannot be used as a ledger"),
        ("SPEC --out broken --resume", 2, "cannot be used as a ledger"),
    ],
)
def test_a_mistake_in_a_command_is_one_line(capsys, spec, arguments, code, message) -> None:
    Path("broken").mkdir()
    Path("broken/sweep.sqlite").write_text("not a database, but long enough to be one" * 9)
    assert run(["sweep", *arguments.replace("SPEC", spec).split()]) == code
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert message in printed.err


def test_a_metric_that_is_not_there_is_a_mistake(capsys, spec) -> None:
    output(capsys, spec, "--out", "out")
    for flags, message in (
        ("--best p99_tft_ms", "did you mean 'p99_ttft_ms'?"),
        ("--best busy_fraction", "say whether min:busy_fraction or max:busy_fraction"),
        ("--best most:p99_ttft_ms", "min:KEY or max:KEY"),
        ("--pareto p99_ttft_ms", "at least two metrics"),
        ("--pareto p99_ttft_ms,,duration", "has an empty place"),
    ):
        assert run(["sweep", "show", "out", *flags.split()]) == 2
        assert message in capsys.readouterr().err


def test_a_missing_trace_is_an_error_of_the_trace(capsys, write) -> None:
    path = write("s.toml", 'trace = "none.jsonl"\n[grid]\nblock_size = [16]\n')
    assert run(["sweep", str(path), "--out", "out"]) == 3
    assert "none.jsonl: no such file" in capsys.readouterr().err


def test_a_spec_that_is_read_from_a_file_is_the_one_that_was_written(spec) -> None:
    assert read_spec(Path(spec)).size == 8
    with pytest.raises(ConfigError, match="no trace"):
        parse_spec({"grid": {"block_size": [16]}})


def test_the_sweep_of_the_readme_is_one(capsys, monkeypatch, write) -> None:
    monkeypatch.chdir(ROOT)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"```toml\n# sweep.toml\n(.*?)```", readme, re.DOTALL)
    assert shown is not None
    path = write("sweep.toml", shown[1])
    assert "\n12 configurations\n" in output(capsys, str(path), "--dry-run")
    whole = write("whole.toml", re.sub(r"^# (?=\[samples|count|over)", "", shown[1], flags=re.M))
    assert read_spec(whole).size == 12 * 20
