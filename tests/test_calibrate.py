"""Calibration without a GPU: its file, its resumption, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvsim.cli.app import run
from kvsim.costs.accuracy import checks
from kvsim.costs.operators import Profile
from kvsim.errors import ConfigError


def test_calibrating_refuses_what_it_cannot_do_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "taken.json"
    taken.write_text("{}")
    for arguments, named in (
        (["--out", str(tmp_path / "p.json"), "--device", "tpu"], "--device 'tpu'"),
        (["--out", str(tmp_path / "no" / "p.json")], "not a folder"),
        (["--out", str(taken)], "--resume"),
    ):
        assert run(["calibrate", *arguments]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert named in error
    assert taken.read_text() == "{}"


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "{}", '{"gpu": "cpu", "schema_version": 1}', "\x00"]
)
def test_a_file_that_holds_no_profile_is_not_gone_on_with(text: str, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="the gpu extra is not installed")
    from kvsim.kernels.calibrate import started

    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"p\.json: "):
        started(path, "cpu", "tiny", resume=True)
    assert path.read_text() == text


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile of next to nothing, by Triton's interpreter; its ``part.json`` is gone on with."""
    pytest.importorskip("torch", reason="the gpu extra is not installed")
    pytest.importorskip("triton", reason="the gpu extra is not installed")
    path = tmp_path_factory.mktemp("calibration") / "tiny.json"
    calibrate_on_cpu(path, "--only", "machine", "--only", "few_rows")
    path.with_name("part.json").write_text(path.read_text())
    calibrate_on_cpu(path, "--resume")
    return path


def calibrate_on_cpu(path: Path, *options: str) -> None:
    """Run ``kvsim calibrate``: Triton's interpreter is chosen when Triton is imported, in a process."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "kvsim", "calibrate", "--device", "cpu", "--out", str(path)]
    subprocess.run([*command, *options], env=environment, check=True, capture_output=True)


def test_a_calibration_writes_a_profile_that_can_be_read(calibrated: Path) -> None:
    data = json.loads(calibrated.read_text())
    profile = Profile(data, calibrated.name)
    assert profile.complete
    assert not data["failed"]
    assert {"gemm", "decode_attention", "rms_norm", "kv_write", "launch"} <= set(profile.operators)
    assert {check.operator for check in checks(profile)} >= {"gemm", "decode_attention"}


def test_a_calibration_says_what_it_was_asked_for(calibrated: Path) -> None:
    runs = json.loads(calibrated.read_text())["runs"]
    assert [run["options"]["resume"] for run in runs] == [False, True]
    assert all(run["options"]["scope"] == "tiny" for run in runs)
    assert [run["options"]["only"] for run in runs] == [["machine", "few_rows"], []]


def test_a_profile_is_complete_once_every_family_was_measured(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="the gpu extra is not installed")
    from kvsim.kernels.calibrate import lacking, started
    from kvsim.kernels.operators import SOURCES

    path = tmp_path / "p.json"
    profile = started(path, "cpu", "tiny", resume=False)
    names = [source.__name__ for source in SOURCES]
    done: list[str] = []
    for name in names:
        assert lacking(profile) == [other for other in names if other not in done]
        profile["runs"].append({"clocks_mhz": {name: None}})
        done.append(name)
    assert not lacking(profile)


def test_a_part_of_a_calibration_does_not_make_a_complete_profile(
    calibrated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = calibrated.with_name("part.json")
    assert not Profile(json.loads(part.read_text()), part.name).complete
    assert run(["profile", "show", "--profile", str(part)]) == 0
    printed = capsys.readouterr().out
    assert "not complete" in printed
    assert "tiny scope, machine, few_rows" in printed


def test_a_profile_of_another_scope_is_not_gone_on_with(calibrated: Path) -> None:
    from kvsim.kernels.calibrate import started

    with pytest.raises(ConfigError, match="scope is 'tiny': expected 'full'"):
        started(calibrated, "cpu", "full", resume=True)


def test_a_resumed_calibration_measures_nothing_twice(calibrated: Path) -> None:
    data = json.loads(calibrated.read_text())
    part = json.loads(calibrated.with_name("part.json").read_text())
    for name, table in part["tables"].items():
        kept = {tuple(one["at"]): one for one in data["tables"][name]}
        assert all(
            kept[tuple(one["at"])]["median"][: len(one["x"])] == one["median"] for one in table
        )
    for series in (one for table in data["tables"].values() for one in table):
        assert len(series["x"]) == len(set(series["x"]))


def test_collectives_are_measured_among_the_numbers_of_gpus_that_a_profile_lacks() -> None:
    pytest.importorskip("triton", reason="the gpu extra is not installed")
    from kvsim.kernels.calibrate import unlinked

    def holding(**counts: list[int]) -> dict[str, object]:
        return {"tables": {name: [{"at": [n]} for n in known] for name, known in counts.items()}}

    none = holding()
    assert [unlinked(none, gpus) for gpus in (0, 1, 2, 6, 8)] == [[], [], [2], [2, 4, 6], [2, 4, 8]]
    pair = holding(all_reduce=[2], all_gather=[2], send=[2])
    assert [unlinked(pair, gpus) for gpus in (1, 2, 8)] == [[], [], [4, 8]]
    broken_off = holding(all_reduce=[2, 4], all_gather=[2, 4], send=[2])
    assert unlinked(broken_off, 4) == [4]
