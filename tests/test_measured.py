"""Measured runs of vLLM on a GPU: the rules iteration by iteration, the predictions metric by metric."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kvsim.errors import KvsimError
from kvsim.validation import RunReport, validate, worst

GOLDEN = Path(__file__).parent / "golden" / "vllm_h200"
ROWS = {"l8b_default__micro": 0, "q32b_default__q_micro": 0, "l8b_kv12000__agent1": 4,
        "l8b_default__code8": 0, "l8b_default__moonconv2": 0}  # fmt: skip
"""Iterations that may differ: an arrival within a millisecond of an iteration falls either way."""


def report(path: Path) -> RunReport:
    found = validate(path)
    assert isinstance(found, RunReport)
    return found


@pytest.mark.parametrize("name", sorted(ROWS))
def test_with_the_recorded_times_every_iteration_is_scheduled_as_vllm_did(name: str) -> None:
    found = report(GOLDEN / f"{name}.json.gz")
    assert found.rows >= 290
    assert found.rows - found.equal_rows <= ROWS[name]


RUNS = ["l8b_default__code8", "l8b_default__moonconv2", "l8b_kv12000__agent1", "l8b_default__micro",
        "l8b_mbt8192_fp8kv__code8", "l8b_mbt8192_fp8kv__moonconv2", "q32b_default__micro"]  # fmt: skip


def test_latencies_and_throughput_of_dense_models_are_predicted_within_their_band(
    shared: Path,
) -> None:
    runs = [report(shared / "reference/vllm_h200" / f"{name}.json.gz") for name in RUNS]
    median, largest = worst(runs)
    assert median < 0.02
    assert largest < 0.12
    for run in runs:
        metrics = run.metrics
        assert abs(metrics["output_throughput"].rel_error or 0) < 0.03
        assert metrics["cached_tokens"].measured == metrics["cached_tokens"].predicted
        assert metrics["peak_kv_usage"].measured == pytest.approx(
            metrics["peak_kv_usage"].predicted, abs=0.02
        )
        for kind in ("decode", "mixed"):
            assert abs(run.step_time[kind].rel_error) < 0.03


def test_a_run_without_what_a_prediction_needs_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "x__code8.json.gz"
    content = json.loads(gzip.decompress((GOLDEN / "l8b_default__code8.json.gz").read_bytes()))
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "code8.jsonl.gz").write_bytes(
        (GOLDEN / "workloads" / "code8.jsonl.gz").read_bytes()
    )
    for spoiled, complaint in [
        ({"requests": [{"i": 0, "submit": "now"}]}, r"requests\[0\] lacks a number"),
        ({"info": {**content["info"], "num_gpu_blocks": None}}, "info.num_gpu_blocks is None"),
        ({"iterations": []}, "iterations is missing or empty"),
        ({"info": {**content["info"], "engine_args": {"model": "gpt-9"}}}, "unknown model 'gpt-9'"),
    ]:
        path.write_text(json.dumps({**content, **spoiled}))
        with pytest.raises(KvsimError, match=complaint) as refusal:
            validate(path)
        assert "\n" not in str(refusal.value)
