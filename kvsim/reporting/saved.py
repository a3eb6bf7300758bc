"""A plan on disk: ``plan.json``, and the run of the recommended fleet beside it in ``run/``.

The folder appears under its name only when it is complete.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kvsim.errors import ConfigError
from kvsim.files import require_writable, written
from kvsim.reporting.plan_data import PlanData, read_plan
from kvsim.runs import MANIFEST as RUN_MANIFEST
from kvsim.runs import REQUESTS, SAMPLES, SUMMARY, load_run, write_json

if TYPE_CHECKING:
    from kvsim.planning import Plan
    from kvsim.runs import RunResult

PLAN, RUN = "plan.json", "run"


def run_of(plan: Plan) -> RunResult | None:
    """The run of the recommended fleet, if its tables were kept."""
    return plan.candidates[0].outcome.result if plan.candidates else None


def check_folder(folder: Path) -> None:
    """ConfigError, before any work, for a folder that is not new (or empty)."""
    if not folder.name or folder.name == "..":
        raise ConfigError(f"--out {folder}: must name a folder for the plan")
    with written(folder):
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise ConfigError(f"{folder}: exists and is not a folder")
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(f"{folder}: is not empty; choose another folder")
    require_writable(folder)


def save_plan(data: Mapping[str, object], run: RunResult | None, folder: Path) -> None:
    """Write a plan and the run of its recommended fleet to a new folder."""
    check_folder(folder)
    with written(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            write_json(part / PLAN, data)
            if run is not None:
                _write_run(run, part / RUN)
            part.chmod(0o755)
            part.replace(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def _write_run(run: RunResult, folder: Path) -> None:
    from kvsim.parquet import RequestWriter, write_samples

    folder.mkdir()
    writer = RequestWriter(folder / REQUESTS)
    writer.write(run.requests)
    writer.close()
    write_samples(folder / SAMPLES, run.samples)
    write_json(folder / SUMMARY, run.summary)
    write_json(folder / RUN_MANIFEST, run.manifest)


def load_plan(path: Path) -> tuple[PlanData, RunResult | None]:
    """A plan from its folder, or from its ``plan.json`` alone; ConfigError says what is wrong."""
    import orjson

    file = path / PLAN if path.is_dir() else path
    try:
        value = orjson.loads(file.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from None
    run = path / RUN
    return read_plan(value, str(file)), load_run(run) if run.is_dir() else None
