"""The command line as its user meets it: what it prints where, and how it leaves."""

from __future__ import annotations

import csv
import importlib
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import pytest

from kvsim.cli.app import COMMANDS, run
from kvsim.cli.named import REGISTRIES
from kvsim.scenario import Scenario, Workload

ROOT = Path(__file__).resolve().parent.parent
ROW = '{{"arrival": {0}, "prompt_tokens": {1}, "output_tokens": 20, "hash_ids": [0, {2}]}}\n'


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Forty requests that share their first 512 tokens."""
    path = tmp_path / "few.jsonl"
    path.write_text("".join(ROW.format(n / 20, 700 + n, n + 1) for n in range(40)))
    return str(path)


def summary_of(capsys, *arguments: str) -> dict:
    """The JSON of a run that must succeed and print nothing else to stdout."""
    assert run([*arguments, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return json.loads(printed.out)


def mistake(capsys, *arguments: str) -> tuple[int, str]:
    """Exit code and the one line on stderr of a run that must fail and print no result."""
    code = run(arguments)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("kvsim: error: ")
    assert printed.err.count("\n") == 1
    return code, printed.err.removeprefix("kvsim: error: ").strip()


# Results.


def test_a_replay_needs_nothing_but_a_trace(capsys, trace) -> None:
    assert run(["replay", trace]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "40 completed" in printed.out
    assert "measured (h200)" in printed.out
    assert "TTFT" in printed.out


def test_json_is_the_summary_and_nothing_else(capsys, trace, tmp_path) -> None:
    summary = summary_of(capsys, "replay", trace, "--out", str(tmp_path / "run"))
    assert summary["completed"] == 40
    assert json.loads((tmp_path / "run" / "summary.json").read_text()) == summary
    assert {"mean_ttft_ms", "p99_tpot_ms", "kv_memory", "verdict"} <= summary.keys()


def test_format_means_the_output_or_the_trace_by_its_value(capsys, trace) -> None:
    assert run(["replay", trace, "--format", "csv", "--format", "kvsim"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert rows[0]["completed"] == "40"
    code, line = mistake(capsys, "replay", trace, "--format", "csv", "--format", "json")
    assert (code, "two output formats" in line) == (2, True)


def test_a_trace_comes_through_standard_input(trace) -> None:
    command = [sys.executable, "-m", "kvsim", "replay", "-", "--json"]
    done = subprocess.run(command, input=Path(trace).read_bytes(), capture_output=True, check=True)
    assert json.loads(done.stdout)["completed"] == 40


def test_flags_that_people_know_change_what_they_say(capsys, trace) -> None:
    plain = summary_of(capsys, "replay", trace)
    small = summary_of(capsys, "replay", trace, "--num-gpu-blocks-override", "60")
    uncached = summary_of(capsys, "replay", trace, "--no-enable-prefix-caching")
    alone = summary_of(capsys, "replay", trace, "--max-num-seqs", "1")
    assert small["kv_blocks_total"] < 61 < plain["kv_blocks_total"]
    assert uncached["prefix_cache_hits"] == 0 < plain["prefix_cache_hits"]
    assert alone["mean_ttft_ms"] > plain["mean_ttft_ms"]
    assert summary_of(capsys, "replay", trace, "--limit", "7")["completed"] == 7
    assert summary_of(capsys, "replay", trace, "--replicas", "3")["num_replicas"] == 3


def test_goodput_counts_requests_that_meet_every_objective(capsys, trace) -> None:
    generous = summary_of(capsys, "replay", trace, "--slo", "ttft=9s", "--slo", "tpot=9s")
    mixed = summary_of(capsys, "replay", trace, "--goodput", "ttft:9000", "--goodput", "tpot:0.001")
    assert generous["request_goodput"] == generous["request_throughput"]
    assert mixed["request_goodput"] == 0


def test_fail_on_prints_the_result_and_exits_5(capsys, trace) -> None:
    assert run(["replay", trace, "--json", "--fail-on", "ttft_p99=1us"]) == 5
    printed = capsys.readouterr()
    assert json.loads(printed.out)["completed"] == 40
    assert re.fullmatch(r"kvsim: error: p99_ttft_ms is \S+ ms, more than 0.001 ms\n", printed.err)
    assert run(["replay", trace, "--json", "--fail-on", "ttft_p99=9s"]) == 0


def test_a_scenario_file_says_the_same_as_flags(capsys, trace, write) -> None:
    path = write("s.toml", 'replicas = 2\n[allocator]\nname = "contiguous"\nfit = "best"\n')
    by_file = summary_of(capsys, "replay", trace, "--scenario", str(path))
    flags = ("--replicas", "2", "--allocator", "contiguous", "--set", "allocator.fit=best")
    assert summary_of(capsys, "replay", trace, *flags) == by_file


def test_a_setting_without_effect_is_pointed_out_on_stderr(capsys, trace) -> None:
    command = ["replay", trace, "--json", "--no-enable-prefix-caching", "--watermark", "0.1"]
    assert run([*command, "--allocator", "buddy"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["completed"] == 40
    assert printed.err.startswith("kvsim: note: enable_prefix_caching means nothing")
    assert printed.err.count("\n") == 1


def test_a_comparison_points_out_which_of_its_columns_ignore_what_was_given(capsys, trace) -> None:
    command = [
        "compare",
        trace,
        "--allocators",
        "paged,buddy,contiguous",
        "--no-enable-prefix-caching",
    ]
    assert run([*command, "--jobs", "1", "--json"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"kvsim: note: enable_prefix_caching means nothing to {name} and chunked"
        for name in ("buddy", "contiguous")
    ]


def test_requests_that_can_never_fit_are_counted_and_the_rest_served(capsys, trace) -> None:
    summary = summary_of(capsys, "replay", trace, "--max-model-len", "740")
    assert summary["num_rejected"] == 19
    assert summary["completed"] == 21


def test_figures_and_a_timeline_are_drawn_beside_the_result(capsys, trace, tmp_path) -> None:
    out, timeline = tmp_path / "run", tmp_path / "timeline.json"
    summary_of(capsys, "replay", trace, "--out", str(out), "--plots", "--trace-out", str(timeline))
    assert {path.suffix for path in (out / "plots").iterdir()} == {".png"}
    names = {event["name"] for event in json.loads(timeline.read_text())["traceEvents"]}
    assert {"prefill", "decode", "KV slots"} <= names
    alone = tmp_path / "alone.json"
    summary_of(capsys, "replay", trace, "--trace-out", str(alone))
    assert json.loads(alone.read_text())["traceEvents"]


# Runs, side by side.


def test_compare_gives_the_same_for_any_number_of_processes(capsys, trace) -> None:
    command = ("compare", trace, "--allocators", "contiguous,paged,radix")
    alone = summary_of(capsys, *command, "--jobs", "1")
    assert list(alone) == ["contiguous", "paged", "radix"]
    assert summary_of(capsys, *command, "--jobs", "3") == alone
    assert alone["paged"] == summary_of(capsys, "replay", trace)


def test_compare_combines_allocators_with_schedulers(capsys, trace) -> None:
    found = summary_of(
        capsys, "compare", trace, "--allocators", "paged,buddy", "--schedulers", "static,chunked"
    )
    assert list(found) == ["paged-static", "paged-chunked", "buddy-static", "buddy-chunked"]


def test_finished_runs_are_shown_and_compared(capsys, trace, tmp_path) -> None:
    folders = [str(tmp_path / "runs" / name) for name in ("paged", "buddy")]
    out = str(tmp_path / "runs")
    assert run(["compare", trace, "--allocators", "paged,buddy", "--out", out]) == 0
    capsys.readouterr()
    shown = summary_of(capsys, "show", folders[0])
    assert summary_of(capsys, "compare", *folders)["paged"] == shown
    assert run(["compare", *folders]) == 0
    header = capsys.readouterr().out.splitlines()[0]
    assert header.split() == ["paged", "buddy"]


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ("--allocators paged", "--allocators"),
        ("--schedulers static --isolations tenant", "--schedulers, --isolations"),
        ("--block-size 32 --limit 9", "--block-size, --limit"),
        ("--set allocator.fit=best --no-enable-prefix-caching", "--allocator, --enable-prefix"),
        ("--slo ttft=2s", "--slo"),
        ("--jobs 1", "--jobs"),
        ("--overwrite", "--overwrite"),
    ],
)
def test_what_finished_runs_cannot_heed_is_refused(
    capsys, trace, tmp_path, flags: str, named: str
) -> None:
    folder = str(tmp_path / "run")
    assert run(["replay", trace, "--out", folder]) == 0
    capsys.readouterr()
    for runs in ([folder], [folder, folder]):
        code, line = mistake(capsys, "compare", *runs, *flags.split())
        assert code == 2
        assert line.startswith(named)
        assert "finished runs are compared as they are; accepted: with one trace" in line
        assert run(["compare", *runs, "--format", "csv"]) == 0
        capsys.readouterr()


@pytest.mark.parametrize("command", ["replay", "compare --allocators paged"])
def test_runs_are_replaced_with_the_flag_that_the_refusal_names(
    capsys, trace, tmp_path, command: str
) -> None:
    name, *flags = command.split()
    place = tmp_path / "runs" if name == "compare" else tmp_path / "runs" / "paged"
    arguments = [name, trace, *flags, "--out", str(place)]
    assert run(arguments) == 0
    capsys.readouterr()
    code, line = mistake(capsys, *arguments)
    assert code == 2
    assert (
        "paged: holds a run already; choose another folder, or replace it with --overwrite" in line
    )
    assert run([*arguments, "--overwrite", "--block-size", "32"]) == 0
    manifest = json.loads((tmp_path / "runs" / "paged" / "manifest.json").read_text())
    assert manifest["scenario"]["block_size"] == 32


@pytest.mark.parametrize("name", ["a:b", "json:loads", "s3:x", "with space", "ü", "100%"])
def test_a_relative_path_is_never_an_address(capsys, trace, tmp_path, monkeypatch, name) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["replay", trace, "--plots", "--json", "--out", f"./{name}"]) == 0
    assert run(["show", f"./{name}"]) == 0
    assert run(["trace", "convert", trace, f"./{name}.parquet"]) == 0
    assert run(["trace", "info", f"{name}.parquet"]) == 0
    assert "40" in capsys.readouterr().out


def test_two_runs_write_the_same_bytes(trace, tmp_path, capsys) -> None:
    for name in ("a", "b"):
        assert run(["replay", trace, "--json", "--out", str(tmp_path / name)]) == 0
    for file in ("summary.json", "requests.parquet", "samples.parquet"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


# Mistakes.


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("reply x", 2, "No such command 'reply'. Did you mean 'replay'?"),
        ("--versoin", 2, "No such option: --versoin; did you mean --version?"),
        ("replay", 2, "Missing argument"),
        ("replay TRACE --allocater paged", 2, "did you mean --allocator?"),
        ("replay TRACE --allocator pagd", 2, "did you mean 'paged'?"),
        ("replay TRACE --model lama-3-8b", 2, "did you mean"),
        ("replay TRACE --gpu h2000", 2, "did you mean"),
        ("replay TRACE --block-size 0", 2, "--block-size = '0'"),
        ("replay TRACE --block-size", 2, "--block-size"),
        ("replay TRACE --request-rate nan", 2, "--request-rate = 'nan'"),
        ("replay TRACE --set allocator.fitt=best --allocator contiguous", 2, "did you mean 'fit'"),
        ("replay TRACE --set fit", 2, "must be like"),
        ("replay TRACE --format mooncak", 2, "did you mean 'mooncake'?"),
        ("replay TRACE --plots", 2, "--plots needs --out"),
        ("replay TRACE --trace-out FOLDER/none/x.json", 2, "is not a folder"),
        ("replay TRACE --trace-out FOLDER", 2, "is a directory"),
        ("replay TRACE --trace-out ..", 2, "is a directory"),
        ("replay TRACE --trace-out /", 2, "is a directory"),
        ("replay TRACE --trace-out TRACE", 2, "is read by the same command"),
        ("trace convert TRACE . --to kvsim", 2, "is a directory"),
        ("trace convert TRACE / --to parquet", 2, "is a directory"),
        ("replay TRACE --fail-on ttft", 2, "must be like ttft=2s"),
        ("replay TRACE --speedup 1e-300", 2, "--speedup is 1e-300"),
        ("replay TRACE --request-rate 1e-300", 2, "--request-rate is 1e-300"),
        ("replay TRACE --speedup 1e-9", 2, "spreads requests over"),
        ("replay TRACE --arrival gamma --burstiness 1e-300", 2, "--burstiness is 1e-300"),
        ("trace info TRACE --limit 99999999999999999999", 2, "--limit is"),
        ("trace generate FOLDER/x.jsonl --turns fixed:1e9", 2, "at most 1,000"),
        ("trace generate FOLDER/x.jsonl --arrival mmpp:2:0.5:1e-9", 2, "from burst to burst"),
        ("trace generate FOLDER/x.jsonl --rate 1e-9", 2, "spreads requests over"),
        ("trace generate FOLDER/x.jsonl.gz --to parquet", 2, "Parquet is compressed"),
        (f"replay TRACE --trace-out FOLDER/{'x' * 2000}", 2, "File name too long"),
        (f"replay TRACE --out FOLDER/{'x' * 2000}", 2, "File name too long"),
        (f"replay TRACE --set {'x' * 2000}", 2, "must be like"),
        ("replay nowhere.jsonl", 3, "nowhere.jsonl"),
        ("replay FOLDER", 3, "directory"),
        ("replay TRACE --model llama-3-70b --gpu h100", 4, "does not fit"),
        ("compare - --allocators paged", 2, "cannot be standard input"),
        ("compare TRACE --allocators paged,pagd", 2, "pagd: unknown allocator 'pagd'"),
        ("compare TRACE TRACE", 2, "is not a folder"),
        ("show nowhere", 2, "does not exist"),
        ("show FOLDER", 2, "is not a complete run"),
    ],
)
def test_a_mistake_is_one_line_with_its_exit_code(
    capsys, trace, tmp_path, arguments, code, message
) -> None:
    (tmp_path / "folder").mkdir()
    places = {"TRACE": trace, "FOLDER": str(tmp_path / "folder")}
    for place, path in places.items():
        arguments = arguments.replace(place, path)
    found, line = mistake(capsys, *arguments.split())
    assert found == code, line
    assert message in line


HUGE = "9" * 20
COUNTS = [
    name
    for kind in (Scenario, Workload)
    for name, field in kind.model_fields.items()
    if int in {field.annotation, *get_args(field.annotation)}
]


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [HUGE, "9" * 2000, f"-{HUGE}", "-1"])
def test_no_count_is_too_large_to_be_refused_in_a_short_line(capsys, trace, name, value) -> None:
    flag = f"--{name.replace('_', '-')}"
    code, line = mistake(capsys, "replay", trace, f"{flag}={value}")
    assert code == 2
    assert flag in line
    assert len(line) < 200


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty"),
        ("not a trace\n", "not recognised"),
        (ROW.format(0, -5, 1), "prompt_tokens"),
    ],
)
def test_a_bad_trace_leaves_nothing_behind(capsys, write, tmp_path, content, message) -> None:
    bad = write("bad.jsonl", content)
    code, line = mistake(capsys, "replay", str(bad), "--out", str(tmp_path / "run"))
    assert code == 3
    assert message in line
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]


def test_a_run_is_not_overwritten_unless_told_to(capsys, trace, tmp_path) -> None:
    command = ["replay", trace, "--json", "--out", str(tmp_path / "run")]
    assert run(command) == 0
    capsys.readouterr()
    assert mistake(capsys, *command)[0] == 2
    assert run([*command, "--overwrite"]) == 0


def test_a_folder_in_a_run_name_cannot_lead_elsewhere(capsys, trace, tmp_path) -> None:
    code, line = mistake(
        capsys, "compare", trace, "--allocators", "../paged,buddy", "--out", str(tmp_path)
    )
    assert code == 2
    assert "../paged" in line


LONG = {
    "replay": ("replay", "--out", "runs/run"),
    "compare": ("compare", "--allocators", "paged,radix", "--jobs", "2", "--out", "runs"),
}


ENDS = {
    "interrupt": (signal.SIGINT, 130, "kvsim: error: interrupted\n"),
    "stop": (signal.SIGTERM, 143, ""),
    "kill": (signal.SIGKILL, -9, ""),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("command", LONG)
def test_an_end_from_outside_leaves_no_run_and_no_process(tmp_path, command, end) -> None:
    long = tmp_path / "long.jsonl"
    long.write_text("".join(ROW.format(n / 1000, 700, n + 1) for n in range(200_000)))
    name, *flags = LONG[command]
    arguments = [sys.executable, "-m", "kvsim", name, "long.jsonl", *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = subprocess.Popen(
        arguments,
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    wanted = 2 if name == "compare" else 1
    while len(list(tmp_path.glob("runs/.*/requests.parquet"))) < wanted:
        assert running.poll() is None
        time.sleep(0.01)
    time.sleep(0.3)  # well into the simulation, which takes a minute
    number, code, complaint = ENDS[end]
    running.send_signal(number)
    printed, said = running.communicate()  # returns when no process holds the pipes any more
    assert running.returncode == code
    assert printed == ""
    assert not list(tmp_path.glob("runs/[!.]*"))
    if end != "kill":
        assert said == complaint
        assert not list(tmp_path.glob("runs/.*"))


def test_an_interrupt_while_libraries_are_loaded_is_one_too(tmp_path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "kvsim", "size"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_reader_that_leaves_early_is_no_error(trace) -> None:
    command = f"{shlex.quote(sys.executable)} -m kvsim replay {shlex.quote(trace)} | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["replay TRACE", "replay TRACE --json", "size", "--help"])
@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_stream_that_is_closed_from_the_start_is_no_error(trace, command, redirection) -> None:
    command = command.replace("TRACE", shlex.quote(trace))
    line = f"{shlex.quote(sys.executable)} -m kvsim {command} {redirection}"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["replay TRACE", "trace convert TRACE -", "size", "--help"])
def test_an_output_that_cannot_be_written_is_one_line(trace, command) -> None:
    command = command.replace("TRACE", shlex.quote(trace))
    line = f"{shlex.quote(sys.executable)} -m kvsim {command} 1</dev/null"  # open, but for reading
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "kvsim: error: standard output: Bad file descriptor\n"


FULL = {
    "convert": "trace convert TRACE out.jsonl",
    "packed": "trace generate out.jsonl.gz",
    "parquet": "trace generate out.parquet",
    "run": "replay TRACE --json --out out",
    "timeline": "replay TRACE --json --trace-out out.json",
}


@pytest.mark.parametrize("name", FULL)
def test_a_full_disk_is_one_line_and_leaves_nothing(trace, tmp_path, name) -> None:
    arguments = FULL[name].replace("TRACE", trace).split()
    folder = tmp_path / "full"
    folder.mkdir()
    with (tmp_path / "printed").open("wb") as printed:
        done = subprocess.run(
            [sys.executable, "-m", "kvsim", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=printed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
        )
    assert done.returncode == 2
    assert done.stderr.startswith("kvsim: error: ")
    assert done.stderr.count("\n") == 1
    assert not list(folder.iterdir())


# What the project's pages promise.


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(capsys, name) -> None:
    assert run([name, "--help"]) == 0
    assert f"kvsim {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("replay", "allocator eviction reservation scheduler victim preemption router cost_model"),
        ("compare", "allocators schedulers eviction"),
        ("plan", "allocator eviction"),
        ("cache", "policies"),
    ],
)
def test_the_help_of_a_flag_lists_the_names_that_it_takes(capsys, command, flags) -> None:
    assert run([command, "--help"]) == 0
    printed = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for flag in flags.split():
        start = printed.index(f"--{flag.replace('_', '-')} ")
        end = printed.find(" --", start)
        module, attribute = REGISTRIES[flag].split(":")
        registry = getattr(importlib.import_module(module), attribute)
        assert f" Names: {', '.join(registry)}." in printed[start:end]


def test_the_help_lists_every_command(capsys) -> None:
    assert run(["--help"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert all(name in printed and command.help in printed for name, command in COMMANDS.items())


def test_the_five_lines_of_the_guide_are_an_allocator(tmp_path, trace) -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n# (\w+)\.py\n(.*?)```", guide, re.DOTALL)
    command = re.search(r"^kvsim replay \S+ (.*--allocator.*)$", guide, re.MULTILINE)
    assert code is not None
    assert command is not None
    (tmp_path / f"{code[1]}.py").write_text(code[2])
    arguments = [sys.executable, "-m", "kvsim", "replay", trace, *shlex.split(command[1]), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["completed"] == 40
    assert len([line for line in code[2].splitlines() if line.strip()]) <= 6


def test_the_trace_of_the_readme_is_shipped_and_its_output_is_real(capsys, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = re.search(r"\.venv/bin/kvsim (replay \S+)", readme)
    assert command is not None
    assert run(command[1].split()) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    sample = re.search(r"```text\n(.*?)```", readme, re.DOTALL)
    assert sample is not None
    assert [line for line in sample[1].splitlines() if line] == [line for line in printed if line]
