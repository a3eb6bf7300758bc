"""The committed figures of the H200: complete, possible, and what the tables say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kvsim.kernels.bench_report import markdown

PEAK_BYTES, PEAK_FLOPS = 4.8e12, 989e12
"""Per second; NVIDIA H200 SXM datasheet, dense bf16."""


@pytest.fixture(scope="module")
def report(root: Path) -> Any:
    return json.loads((root / "reports/kernels_h200.json").read_text(encoding="utf-8"))


def test_the_tables_are_made_from_the_figures(root: Path, report: Any) -> None:
    assert (root / "reports/kernels_h200.md").read_text(encoding="utf-8") == markdown(report)


def test_the_figures_say_where_they_come_from(report: Any) -> None:
    assert {"device", "driver", "torch", "triton", "date", "command"} <= set(report["provenance"])
    assert report["provenance"]["device"] == "NVIDIA H200"


def test_no_kernel_is_faster_than_the_machine(report: Any) -> None:
    for row in report["rows"]:
        seconds = row["p10"] / 1e6
        assert 0 < row["p10"] <= row["median"] <= row["p90"]
        assert max(row["bytes"] / PEAK_BYTES, row["flops"] / PEAK_FLOPS) < seconds, row


def test_every_attention_was_right_when_it_was_timed(report: Any) -> None:
    errors = [row["error"] for row in report["rows"] if row["kind"] in ("decode", "prefill")]
    assert len(errors) > 100
    assert all(error < 1e-2 for error in errors)


@pytest.mark.parametrize(
    ("kind", "shape", "most"),
    [
        ("decode", {"batch": 128, "context": 4096, "kv": "bf16"}, 1.05),
        ("decode", {"batch": 128, "context": 16384, "kv": "bf16"}, 1.05),
        ("decode", {"batch": 32, "context": 65536, "kv": "bf16"}, 1.05),
        ("decode", {"batch": 1, "kv": "bf16"}, 1.25),
        ("decode", {"batch": 128, "context": 4096, "kv": "fp8"}, 1 / 1.15),
        ("decode", {"batch": 128, "context": 16384, "kv": "fp8"}, 1 / 1.15),
        ("prefill", {}, 1.5),
    ],
)
def test_the_kernels_keep_up_with_flash_attention_3(
    report: Any, kind: str, shape: dict[str, object], most: float
) -> None:
    ratios = [
        row["median"] / row["reference"]
        for row in report["rows"]
        if row["kind"] == kind and row["reference"] and shape.items() <= row["shape"].items()
    ]
    assert ratios
    assert max(ratios) <= most
