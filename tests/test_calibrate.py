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
        (["--out", str(tmp_path / "no" / "p.json")], "no folder"),
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
    """A profile of next to nothing, by Triton's interpreter; twice, the second time resumed."""
    pytest.importorskip("torch", reason="the gpu extra is not installed")
    pytest.importorskip("triton", reason="the gpu extra is not installed")
    path = tmp_path_factory.mktemp("calibration") / "tiny.json"
    # The interpreter is chosen when Triton is imported, so this needs a process of its own.
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    for extra in ([], ["--resume"]):
        command = [sys.executable, "-m", "kvsim", "calibrate", "--device", "cpu"]
        subprocess.run(
            [*command, "--out", str(path), *extra], env=environment, check=True, capture_output=True
        )
    return path


def test_a_calibration_writes_a_profile_that_can_be_read(calibrated: Path) -> None:
    data = json.loads(calibrated.read_text())
    profile = Profile(data, calibrated.name)
    assert profile.complete
    assert not data["failed"]
    assert {"gemm", "decode_attention", "rms_norm", "kv_write", "launch"} <= set(profile.operators)
    assert {check.operator for check in checks(profile)} >= {"gemm", "decode_attention"}


def test_a_resumed_calibration_measures_nothing_twice(calibrated: Path) -> None:
    data = json.loads(calibrated.read_text())
    assert len(data["runs"]) == 2
    for series in (one for table in data["tables"].values() for one in table):
        assert len(series["x"]) == len(set(series["x"]))
    assert data["runs"][1]["seconds"] < data["runs"][0]["seconds"]
