"""Figures that texts quote are those of the reports and data that they come from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from kvsim.costs.accuracy import accuracies
from kvsim.costs.operators import load_profile


@pytest.fixture(scope="session")
def readme(root: Path) -> str:
    return in_one_line(root / "README.md")


def in_one_line(path: Path) -> str:
    return " ".join(path.read_text(encoding="utf-8").split())


def test_the_readme_says_how_exact_the_shipped_profile_is(readme: str) -> None:
    every = accuracies(load_profile("h200"))[-1]
    assert f"On {every.shapes} shapes held out for the check the median error is {percent(every.median)}," in readme  # fmt: skip
    assert (
        f"one in twenty is off by more than {percent(every.p95)} (`kvsim profile check`)" in readme
    )


def test_texts_say_how_well_measured_runs_are_predicted(root: Path, readme: str) -> None:
    report = json.loads((root / "reports/validation/vllm_h200.json").read_text(encoding="utf-8"))
    page = in_one_line(root / "reports/validation_vllm_h200.md")
    dense = [
        abs(error) for run in report["runs"] if "dsv2" not in run["name"] for error in errors(run)
    ]
    every = [abs(error) for run in report["runs"] for error in errors(run)]
    assert f"over nine runs on an H200 the median error is {percent(median(every))} " in readme
    assert (
        f"Median of the absolute errors {percent(median(every))}; of the dense models "
        f"{percent(median(dense))}, their largest {percent(max(dense))}."
    ) in page


def errors(run: dict[str, Any]) -> list[float]:
    """Relative errors of all that was measured and is not 0."""
    return [one["rel_error"] for one in run["metrics"].values() if one["rel_error"] is not None]


def test_the_readme_says_how_close_executed_runs_are(root: Path, readme: str) -> None:
    report = json.loads((root / "reports/hardware_h200.json").read_text(encoding="utf-8"))
    first, second = report["allocators"]["rows"], report["repeat"]["rows"]
    found = [abs(error) for row in first for error in row["errors"].values()]
    assert f"The median of all {len(found)} errors is {median(found):.1%}, the largest {max(found):.1%};" in readme  # fmt: skip
    *others, last = (f"{100 * row['median_error']:.1f}" for row in second)
    assert f"the medians were {', '.join(others)} and {last}%." in readme


def test_the_guide_to_planning_counts_as_the_report_on_its_speed(root: Path) -> None:
    counted = re.search(
        r"Of the replays (\d+) missed the objective, and (\d+) of them were stopped",
        in_one_line(root / "reports/plan_speed.md"),
    )
    assert counted is not None
    guide = in_one_line(root / "docs/PLANNING.md")
    assert f"{counted[2]} of the {counted[1]} that missed were stopped" in guide


def percent(share: float) -> str:
    """As these texts write it."""
    return f"{100 * share:.1f} %"
