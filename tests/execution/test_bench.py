"""The comparison of simulated and executed runs, on the CPU and a tiny model."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="executing a model needs the gpu extra")
pytest.importorskip("triton", reason="executing a model needs the gpu extra")

from test_execution import CONFIG

from kvsim.execution.bench_report import markdown
from kvsim.execution.comparison import ALLOCATORS, METRICS, Setup, calibration, compared
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
    report = {"provenance": {}, "setup": asdict(setup), "allocators": rows}
    report["calibration"] = {**found, "host": 0.0}
    text = markdown(report)
    assert "| output tokens/s |" in text
    assert all(name in text for name in ALLOCATORS)
