"""A run on disk: ``manifest.json``, ``summary.json``, ``requests.parquet``, ``samples.parquet``.

A run folder is written under a hidden name beside its place and renamed when it is complete, so that
nothing half-written ever looks like a run. Identical inputs give identical bytes, except for what
the manifest says under ``host``.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from kvsim.errors import ConfigError
from kvsim.files import require_writable, whole_file, written

if TYPE_CHECKING:
    from kvsim.analysis.summary import Deployment, Summary
    from kvsim.parquet import RequestWriter
    from kvsim.tables import EngineRecord, Floats, Ints, RequestTable, SampleTable

SCHEMA_VERSION = 3
"""Of the run folder; a reader refuses any other."""
MANIFEST, SUMMARY = "manifest.json", "summary.json"
REQUESTS, SAMPLES = "requests.parquet", "samples.parquet"
FILES = (MANIFEST, SUMMARY, REQUESTS, SAMPLES)

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

Manifest = dict[str, object]


@dataclass
class RunResult:
    """A finished run; its tables are read when they are first asked for."""

    name: str
    manifest: Manifest
    summary: Summary
    path: Path | None = None
    """Its folder; None for a run that was never written."""
    tables: tuple[RequestTable, SampleTable] | None = field(default=None, repr=False)
    """Its tables, if they were kept in memory."""
    absent: tuple[str, ...] = ()
    """Tenants with a quota of whom it had no request; of a run that has just been made."""

    @cached_property
    def requests(self) -> RequestTable:
        """A row for each request, in order of completion."""
        from kvsim.parquet import read_requests

        return self.tables[0] if self.tables else read_requests(self._file(REQUESTS))

    @cached_property
    def samples(self) -> SampleTable:
        """The state of each replica over time."""
        from kvsim.parquet import read_samples

        return self.tables[1] if self.tables else read_samples(self._file(SAMPLES))

    def _file(self, name: str) -> Path:
        if self.path is None:
            raise ConfigError(f"run {self.name!r} kept only its summary; run it with --out DIR")
        return self.path / name


def new_manifest(
    *,
    scenario: Mapping[str, object],
    scenario_hash: str,
    trace: Mapping[str, object],
    seed: int,
    executor: Mapping[str, object] | None = None,
) -> Manifest:
    """What a run was made from; ``trace`` holds at least its ``sha256`` (None for a stream).

    ``executor`` says what computed the iterations, if anything did.
    """
    from kvsim import __version__

    return {
        "schema_version": SCHEMA_VERSION,
        "kvsim_version": __version__,
        "scenario": dict(scenario),
        "scenario_hash": scenario_hash,
        "trace": dict(trace),
        "seed": seed,
        "host": _host() | ({"executor": dict(executor)} if executor is not None else {}),
    }


def _host() -> dict[str, object]:
    import platform

    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
    }


def run_path(root: Path, name: str) -> Path:
    """The folder of the run called ``name`` under ``root``; a name cannot lead elsewhere."""
    if not _RUN_NAME.fullmatch(name):
        raise ConfigError(
            f"run name {name!r}: must be letters, digits, '.', '_' and '-', not starting with '.'"
        )
    return root / name


class Recording:
    """Receives a run while it runs and makes its result: a context manager and a table sink.

    With ``out`` requests stream to a run folder, which appears at that path when :meth:`complete`
    is called, and not at all when the block is left before (an error, Ctrl-C). Without, ``keep``
    says whether the tables stay in memory. ``slos`` are limits in seconds by latency, for goodput.

        with Recording(Path("runs/a"), slos={"ttft": 2.0}) as recording:
            recorder = Recorder(replicas, slots, recording)
            simulate(..., recorder)
            result = recording.complete(manifest, recorder.close(), deployment)
    """

    def __init__(
        self,
        out: Path | None = None,
        *,
        overwrite: bool = False,
        keep: bool = False,
        slos: Mapping[str, float] | None = None,
    ) -> None:
        from kvsim.analysis.statistics import RunStatistics

        if out is not None:
            require_place(out, overwrite=overwrite)
        self._out = out
        self._kept: list[RequestTable] | None = [] if keep and out is None else None
        self._statistics = RunStatistics(slos)
        self._folder: Path | None = None
        self._writer: RequestWriter | None = None

    def __enter__(self) -> Self:
        if self._out is not None:
            self._open(self._out)
        return self

    def _open(self, out: Path) -> None:
        from kvsim.parquet import RequestWriter

        with written(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
            self._writer = RequestWriter(self._folder / REQUESTS)

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def requests(self, table: RequestTable) -> None:
        """Take requests that ended."""
        self._statistics.requests(table)
        if self._writer is not None:
            with written(self._out):
                self._writer.write(table)
        if self._kept is not None:
            self._kept.append(table)

    def gaps(self, seconds: Floats, counts: Ints) -> None:
        """Take gaps between tokens."""
        self._statistics.gaps(seconds, counts)

    def complete(
        self, manifest: Manifest, engine: EngineRecord, deployment: Deployment, name: str = "run"
    ) -> RunResult:
        """The result; with a folder, everything is now in place under its final name."""
        from kvsim.analysis.summary import summarise
        from kvsim.tables import RequestTable

        summary = summarise(self._statistics, engine, deployment)
        if self._out is not None:
            with written(self._out):
                self._place(self._out, manifest, summary, engine.samples)
            return RunResult(self._out.name, manifest, summary, self._out)
        tables = None
        if self._kept is not None:
            tables = RequestTable.concatenate(self._kept), engine.samples
        return RunResult(name, manifest, summary, tables=tables)

    def _place(self, out: Path, manifest: Manifest, summary: Summary, samples: SampleTable) -> None:
        from kvsim.parquet import write_samples

        assert self._folder is not None
        assert self._writer is not None
        self._writer.close()
        self._writer = None
        write_samples(self._folder / SAMPLES, samples)
        write_json(self._folder / SUMMARY, summary)
        write_json(self._folder / MANIFEST, manifest)
        self._folder.chmod(0o755)
        _replace(self._folder, out)
        self._folder = None


def require_place(out: Path, *, overwrite: bool = False) -> None:
    """Refuse, before any work, a folder that a run cannot be written to.

    A folder is overwritten only if it is empty, or a run that may be.
    """
    with written(out):
        _refuse_foreign(out, overwrite=overwrite)
    require_writable(out)


def _refuse_foreign(out: Path, *, overwrite: bool) -> None:
    if not out.name or out.name == "..":
        raise ConfigError(f"--out {out}: must name a folder for the run")
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise ConfigError(f"{out}: exists and is not a folder")
    if not out.exists() or not any(out.iterdir()):
        return
    if not (out / MANIFEST).is_file():
        raise ConfigError(f"{out}: is not empty and not a run; choose another folder")
    load_run(out)
    if not overwrite:
        raise ConfigError(
            f"{out}: holds a run already; choose another folder, or replace it with --overwrite"
        )


def _replace(folder: Path, out: Path) -> None:
    """Move a complete folder to its place; the run that was there, if any, goes."""
    old = None
    if out.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{out.name}.old.", dir=out.parent))
        out.rename(old)
    folder.rename(out)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def to_json(value: object) -> bytes:
    """Readable JSON, keys in their order, a line break at the end."""
    import orjson

    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def write_json(path: Path, value: object) -> None:
    """Write JSON that appears whole or not at all."""
    with whole_file(path) as file:
        file.write(to_json(value))


def load_run(path: Path) -> RunResult:
    """Read a finished run; :class:`ConfigError` says what is wrong with the folder."""
    if not path.is_dir():
        raise ConfigError(f"{path}: {'is not a folder' if path.exists() else 'does not exist'}")
    missing = [name for name in FILES if not (path / name).is_file()]
    if missing:
        raise ConfigError(f"{path}: is not a complete run: {', '.join(missing)} missing")
    manifest = _read_object(path / MANIFEST)
    version = manifest.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ConfigError(
            f"{path / MANIFEST}: schema_version {version!r}; this kvsim reads {SCHEMA_VERSION}"
        )
    return RunResult(path.resolve().name, manifest, _read_summary(path / SUMMARY), path)


def _read_summary(path: Path) -> Summary:
    summary = _read_object(path)
    for key, value in summary.items():
        parts = value.values() if isinstance(value, dict) else ()
        if isinstance(value, list) or not all(isinstance(part, int | float) for part in parts):
            raise ConfigError(f"{path}: {key} is {value!r:.40}; a summary holds single values")
    return cast("Summary", summary)


def _read_object(path: Path) -> dict[str, object]:
    import orjson

    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: holds {type(value).__name__}, not an object")
    return value
