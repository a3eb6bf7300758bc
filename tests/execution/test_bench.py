"""The comparison of simulated and executed runs, on the CPU and a tiny model."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="executing a model needs the gpu extra")
pytest.importorskip("triton", reason="executing a model needs the gpu extra")

from test_execution import CONFIG

from kvsim.execution import verification
from kvsim.execution.bench_report import markdown
from kvsim.execution.comparison import ALLOCATORS, METRICS, Setup, calibration, compared
from kvsim.memory.mapped import MAPPED
from kvsim.runs import load_run


def test_allocators_are_executed_and_simulated_and_the_runs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for slow in ("buddy", "radix"):
        monkeypatch.delitem(ALLOCATORS, slow)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    setup = Setup(
        model=str(tmp_path),
        executor="cpu",
        blocks=24,
        max_model_len=96,
        max_num_seqs=4,
        requests=3,
        rate=1000.0,
        prompt="uniform:10:30",
        output="uniform:2:6",
        prefix_tokens=16,
    )
    found = calibration(setup, tmp_path)
    assert found["iterations"] == sum(one["iterations"] for one in found["residuals"].values())
    rows = list(compared(setup, found["overhead"], tmp_path, log=lambda _: None))
    assert [row["allocator"] for row in rows] == list(ALLOCATORS)
    for row in rows:
        assert row["executed"]["completed"] == row["simulated"]["completed"] == 3
        assert METRICS[0] in row["errors"]
    run = load_run(tmp_path / "paged-executed")
    assert run.summary["cost_model"] == "executed on cpu"


def test_verification_goes_through_everything_that_moves_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    monkeypatch.setattr(verification, "CASES", (("paged", "fp8"),))
    few = (request._replace(output_tokens=3) for request in islice(verification.workload(), 4))
    (row,) = verification.verifications(str(tmp_path), "cpu", few, tmp_path)
    assert row["sequences"] == 1 + 3 + 1 + 3
    assert row["largest_error"] <= row["tolerance"]


def test_the_committed_tables_are_made_from_the_committed_figures(root: Path) -> None:
    report = json.loads((root / "reports/hardware_h200.json").read_text(encoding="utf-8"))
    written = (root / "reports/hardware_h200.md").read_text(encoding="utf-8")
    assert written == markdown(report)
    assert report["provenance"]["device"] == "NVIDIA H200"


def test_the_committed_errors_are_within_the_target(root: Path) -> None:
    report = json.loads((root / "reports/hardware_h200.json").read_text(encoding="utf-8"))
    assert len(report["allocators"]) == len(MAPPED)
    assert all(row["median_error"] <= 0.05 for row in report["allocators"])
    assert all(row["largest_error"] <= row["tolerance"] for row in report["verified"])
