"""Whatever a command writes, a place where that cannot be is refused before anything is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvsim.cli.app import COMMANDS, load, run

FILES = {
    "replay --trace-out": "replay none.jsonl --trace-out PLACE",
    "plan --report": "plan none.jsonl --slo ttft=2s --report PLACE.html",
    "report --out": "report none --out PLACE.md",
    "calibrate --out": "calibrate --device cpu --out PLACE",
    "trace convert OUT": "trace convert none.jsonl PLACE --to kvsim",
    "trace generate OUT": "trace generate PLACE --to kvsim --prompt fit:none.jsonl",
    "validate --report": "validate none.json.gz --report PLACE.html",
}
"""A command for each option that names a file to write; nothing that it reads exists."""
FOLDERS = {
    "replay --out": "replay none.jsonl --out PLACE",
    "compare --out": "compare none.jsonl --allocators paged,radix --out PLACE",
    "sweep run --out": "sweep run sweep.toml --out PLACE",
    "plan --out": "plan none.jsonl --slo ttft=2s --out PLACE",
    "plan --cache": "plan none.jsonl --slo ttft=2s --cache PLACE",
    "recommend --cache": "recommend none.jsonl --cache PLACE",
    "cache --plots": "cache none.jsonl --plots PLACE",
    "leakage --plots": "leakage none.jsonl --plots PLACE",
    "profile show --plots": "profile show --profile none.json --plots PLACE",
    "reproduce --out": "reproduce mooncake-cache --trace none.jsonl --out PLACE",
}
"""The same of folders."""
READ = {
    "--scenario", "--price-file", "--workload", "RUN", "DIR", "SPEC", "[RUNS_DIR]", "RECORDINGS",
    "RUN|SWEEP|PLAN...",
}  # fmt: skip
"""Paths that are read, in whatever command."""


def leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The commands that can be called, by name."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
    for own, one in (inner or {}).items():
        yield from leaves(one, f"{name} {own}")


def paths() -> Iterator[tuple[str, str]]:
    """Every parameter that is a path: its command, and how it is written."""
    for first in COMMANDS:
        for name, command in leaves(load(first), first):
            for parameter in command.params:
                if "Path" in str(parameter.type_descriptor.annotation):
                    is_flag = parameter.param_type_name == "option"
                    metavar = parameter.metavar or parameter.name.upper()
                    yield name, parameter.opts[0] if is_flag else metavar


def test_every_path_of_every_command_is_read_or_tested_here() -> None:
    written = {f"{command} {flag}" for command, flag in paths() if flag not in READ}
    assert written == {*FILES, *FOLDERS}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, which holds a file, a folder and a link to nothing."""
    (tmp_path / "sweep.toml").write_text('trace = "none.jsonl"\n[grid]\nblock_size = [16, 32]\n')
    for ending in ("", ".html", ".md"):
        (tmp_path / f"file{ending}").write_text("x")
        (tmp_path / f"folder{ending}").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nothing" / "at-all")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def state(folder: Path) -> dict[str, str | None]:
    """All that is in a folder, but what remembers replays."""
    found = (path for path in folder.rglob("*") if "cache" not in path.relative_to(folder).parts)
    return {str(path): path.read_text() if path.is_file() else None for path in found}


def refused(command: str, place: str, here: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which a place is refused, nothing read or written."""
    before = state(here)
    assert run(command.replace("PLACE", place).split()) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("kvsim: error: ")
    assert error.count("\n") == 1
    assert place in error
    assert "none" not in error.replace(place, "")
    assert state(here) == before
    return error


NOWHERE = [
    "file/x",
    "link/x",
    "x" * 300,
    pytest.param(
        "/proc/x", marks=pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
    ),
]


@pytest.mark.parametrize("place", NOWHERE)
@pytest.mark.parametrize("command", [*FILES.values(), *FOLDERS.values()], ids=[*FILES, *FOLDERS])
def test_where_nothing_can_be_made_nothing_is_begun(
    command: str, place: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(command, place, here, capsys)


@pytest.mark.parametrize("place", ["folder", "missing/x"])
@pytest.mark.parametrize("command", FILES.values(), ids=FILES)
def test_a_file_needs_a_name_of_its_own_in_a_folder_that_exists(
    command: str, place: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "is a directory" if place == "folder" else "missing is not a folder"
    assert reason in refused(command, place, here, capsys)


@pytest.mark.parametrize("command", FOLDERS.values(), ids=FOLDERS)
def test_a_file_is_not_taken_for_a_folder(
    command: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(command, "file", here, capsys)


@pytest.mark.parametrize("command", ["trace convert OUT", "replay --trace-out", "calibrate --out"])
def test_a_pipe_or_a_device_is_not_replaced_by_a_file(
    command: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is a device or a pipe" in refused(FILES[command], "pipe", here, capsys)


@pytest.mark.parametrize(
    ("command", "taken"),
    [
        ("validate --report", "PLACE.json"),
        ("report --out", "PLACE_figures/ttft.svg"),
        ("cache --plots", "PLACE/popularity.png"),
        ("leakage --plots", "PLACE/ttft.png"),
        ("profile show --plots", "PLACE/rates.png"),
        ("reproduce --out", "PLACE/mooncake-cache.md"),
    ],
)
def test_a_folder_where_a_file_would_be_written_beside_others_is_refused(
    command: str, taken: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / taken.replace("PLACE", "new")).mkdir(parents=True)
    error = refused({**FILES, **FOLDERS}[command], "new", here, capsys)
    assert f"{taken.replace('PLACE', 'new')}: is a directory" in error


@pytest.mark.parametrize(
    ("command", "read"),
    [
        ("replay a.jsonl --trace-out PLACE", "a.jsonl"),
        ("plan a.csv --slo ttft=2s --report PLACE", "a.csv"),
        ("plan none.jsonl --slo ttft=2s --price-file a.csv --report PLACE", "a.csv"),
        ("report none --price-file a.csv --out PLACE", "a.csv"),
        ("validate a.html --report PLACE", "a.html"),
        ("validate a.json --report a.html", "a.json"),
        ("validate run --report run/meta.html", "run/meta.json"),
        ("validate b.json.gz --workload a.json --report a.html", "a.json"),
    ],
)
def test_what_is_read_is_not_written_over(
    command: str, read: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / read).parent.mkdir(exist_ok=True)
    (here / read).write_text("{}")
    assert "is read by the same command" in refused(command, read, here, capsys)


@pytest.mark.parametrize(
    ("command", "held", "reason"),
    [
        ("replay --out", "new/thesis.tex", "is not empty and not a run"),
        ("compare --out", "new/radix/thesis.tex", "is not empty and not a run"),
        ("plan --out", "new/thesis.tex", "is not empty"),
        ("calibrate --out", "new", "exists; give --resume"),
    ],
)
def test_what_took_long_to_make_is_not_overwritten(
    command: str, held: str, reason: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / held).parent.mkdir(parents=True, exist_ok=True)
    (here / held).write_text("years of work")
    assert reason in refused({**FILES, **FOLDERS}[command], "new", here, capsys)


def test_finished_runs_are_not_written_again(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "finished runs are not" in refused("compare a b --out PLACE", "new", here, capsys)
