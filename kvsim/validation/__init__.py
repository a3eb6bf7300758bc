"""Checks kvsim against what real engines have decided and how long they took."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from kvsim.catalog import load_gpu
from kvsim.errors import CapacityError, ConfigError, TraceError
from kvsim.validation.bench_run import META, read_bench_run
from kvsim.validation.measured import Comparison, RunReport, calibrated, check_measured
from kvsim.validation.measurement import Measurement
from kvsim.validation.radix import check_radix
from kvsim.validation.reference import Verdict, load_reference
from kvsim.validation.scheduler import check_scheduler
from kvsim.validation.vllm_run import read_vllm_run

__all__ = ["META", "Comparison", "RunReport", "Verdict", "summary", "validate", "worst"]


def validate(
    path: Path,
    workload: Path | None = None,
    *,
    leaps: bool = True,
    calibrate: bool = False,
    gpu: str | None = None,
) -> Verdict | RunReport:
    """Repeat what an engine did and compare it with the engine's own record.

    ``path`` is a recording of vLLM's scheduler or of SGLang's radix cache, or a measured run of vLLM
    (``CONFIG__WORKLOAD.json.gz``, or the folder that LLMServingSim's benchmark writes); without
    ``workload`` the requests are looked for as ``workloads/WORKLOAD.jsonl[.gz]`` beside it.
    ``calibrate`` first makes the step times of a measured run longer by what fits it best; ``gpu``
    names what it ran on, whatever is recorded.
    """
    given = None if gpu is None else load_gpu(gpu)
    if path.name == META or (path / META).is_file():
        folder = path.parent if path.name == META else path
        with engine_of(path):
            return check(read_bench_run(folder, workload, given), calibrate=calibrate)
    recording = load_reference(path)
    if "info" in recording:
        with engine_of(path):
            return check(read_vllm_run(recording, path, workload, given), calibrate=calibrate)
    if given is not None or calibrate:
        flag = "--calibrate" if given is None else "--gpu"
        raise ConfigError(f"{flag}: {path} is no measured run; accepted: with measured runs alone")
    with engine_of(path):
        if "rows" in recording:
            return check_radix(recording, path, workload)
        return check_scheduler(recording, path, workload, leaps=leaps)


@contextmanager
def engine_of(path: Path) -> Iterator[None]:
    """Turn what is said of an engine that cannot be into what is said of its recording."""
    try:
        yield
    except (ConfigError, CapacityError) as error:
        raise TraceError(f"{path}: {error}") from None


def check(run: Measurement, *, calibrate: bool) -> RunReport:
    """Compare a prediction of a measured run with the measurement."""
    return check_measured(run, calibrated(run) if calibrate else 1.0)


def worst(runs: Seq[RunReport]) -> tuple[float, float]:
    """Median and maximum of the absolute relative errors of all metrics of all runs."""
    found = [metric.rel_error for run in runs for metric in run.metrics.values()]
    errors = [abs(error) for error in found if error is not None]
    return median(errors), max(errors)


def covered(runs: Seq[RunReport]) -> float:
    """Share of all metrics of all runs whose measurement lies in the prediction's interval."""
    inside = [metric.inside for run in runs for metric in run.metrics.values()]
    return sum(inside) / len(inside)


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
        found |= {"coverage": covered(runs)}
    return found
