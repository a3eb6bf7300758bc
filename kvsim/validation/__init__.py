"""Checks kvsim against what real engines have decided and how long they took."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from pathlib import Path
from statistics import median

from kvsim.validation.measured import RunReport, check_measured
from kvsim.validation.radix import check_radix
from kvsim.validation.reference import Verdict, load_reference
from kvsim.validation.scheduler import check_scheduler
from kvsim.validation.vllm_run import read_vllm_run

__all__ = ["RunReport", "Verdict", "summary", "validate", "worst"]


def validate(
    path: Path, workload: Path | None = None, *, leaps: bool = True
) -> Verdict | RunReport:
    """Repeat what an engine did and compare it with the engine's own record.

    ``path`` is a recording of vLLM's scheduler or of SGLang's radix cache, or a measured run of vLLM
    (``CONFIG__WORKLOAD.json.gz``); without ``workload`` the requests are looked for as
    ``workloads/WORKLOAD.jsonl[.gz]`` beside it.
    """
    recording = load_reference(path)
    if "rows" in recording:
        return check_radix(recording, path, workload)
    if "info" in recording:
        return check_measured(read_vllm_run(recording, path, workload))
    return check_scheduler(recording, path, workload, leaps=leaps)


def worst(runs: Seq[RunReport]) -> tuple[float, float]:
    """Median and maximum of the absolute relative errors of all metrics of all runs."""
    found = [metric.rel_error for run in runs for metric in run.metrics.values()]
    errors = [abs(error) for error in found if error is not None]
    return median(errors), max(errors)


def summary(reports: Seq[Verdict | RunReport]) -> dict[str, object]:
    """What the command prints as JSON: one verdict, or all runs with their errors."""
    if len(reports) == 1 and isinstance(reports[0], Verdict):
        return reports[0].as_dict()
    runs = [report for report in reports if isinstance(report, RunReport)]
    verdicts = [report.as_dict() for report in reports if isinstance(report, Verdict)]
    found: dict[str, object] = {"recordings": verdicts} if verdicts else {}
    if runs:
        middle, most = worst(runs)
        found |= {"runs": [run.as_dict() for run in runs]}
        found |= {"median_abs_rel_error": middle, "max_abs_rel_error": most}
    return found
