"""The comparison of simulated and executed runs, on the CPU and a tiny model."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="executing a model needs the gpu extra")
pytest.importorskip("triton", reason="executing a model needs the gpu extra")

from tiny import CONFIG

from kvsim.execution.bench import PARTS
from kvsim.execution.bench_report import brief, markdown
from kvsim.execution.comparison import (
    CASES,
    METRICS,
    Setup,
    compared,
    overhead_of,
)
from kvsim.execution.verification import verifications, workload
from kvsim.runs import load_run


def test_allocators_are_executed_and_simulated_and_the_runs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for slow in ("buddy (pow2)", "radix"):
        monkeypatch.delitem(CASES, slow)
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
    rows = list(compared(setup, tmp_path, log=lambda _: None))
    assert [row["case"] for row in rows] == list(CASES)
    for row in rows:
        told = row["calibration"]
        assert told["iterations"] == sum(one["iterations"] for one in told["residuals"].values())
        assert row["executed"]["completed"] == row["simulated"]["completed"] == 3
        assert METRICS[0] in row["errors"]
    run = load_run(tmp_path / "paged-executed")
    assert run.summary["cost_model"] == "executed on cpu"


def test_overhead_is_a_line_through_medians_that_pauses_do_not_move() -> None:
    gaps = [(count, 300e-6 + 5e-6 * count) for count in (1, 4, 20, 21) for _ in range(5)]
    pauses = [(4, 0.1), (21, 0.2)]
    assert overhead_of([*gaps, *pauses]) == pytest.approx((300e-6, 5e-6))


@pytest.mark.parametrize(
    ("gaps", "wanted"),
    [
        ([(8, 3e-4), (8, 5e-4), (8, 4e-4)], (4e-4, 0.0)),
        ([(1, 6e-4), (9, 2e-4), (9, 4e-4)], (4e-4, 0.0)),
        ([(10, 1e-4), (20, 4e-4)], (0.0, 3e-5)),
    ],
)
def test_overhead_is_never_less_for_more_sequences_nor_below_zero(
    gaps: list[tuple[int, float]], wanted: tuple[float, float]
) -> None:
    assert overhead_of(gaps) == pytest.approx(wanted)


def test_verification_goes_through_everything_that_moves_blocks(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    few = (request._replace(output_tokens=3) for request in islice(workload(), 4))
    cases = [("paged", "fp8", "swap")]
    (row,) = verifications(str(tmp_path), "cpu", cases, few, tmp_path)
    assert row["sequences"] == 1 + 3 + 1 + 3
    assert row["largest_error"] <= row["tolerance"]


@pytest.fixture
def report(root: Path) -> Any:
    """The committed figures."""
    return json.loads((root / "reports/hardware_h200.json").read_text(encoding="utf-8"))


def test_the_committed_tables_are_made_from_the_committed_figures(root: Path, report: Any) -> None:
    written = (root / "reports/hardware_h200.md").read_text(encoding="utf-8")
    assert written == markdown(report)
    assert list(report) == list(PARTS)
    assert all(part["provenance"]["device"] == "NVIDIA H200" for part in report.values())
    assert brief(report["allocators"]["rows"]) in (root / "README.md").read_text(encoding="utf-8")


def test_the_committed_errors_are_within_the_target(report: Any) -> None:
    rows = report["allocators"]["rows"]
    assert {row["case"] for row in rows} >= {*CASES} - {"paged, swapping"}
    assert all(row["median_error"] <= 0.05 for row in rows)
    outputs = [*report["verified"]["rows"], *report["swapped"]["rows"]]
    assert all(row["largest_error"] <= row["tolerance"] for row in outputs)
