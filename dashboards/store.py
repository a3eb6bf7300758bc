"""What lies in the folder of runs: runs, sweeps and plans by name, and what is wrong with the others.

Names come from a scan of the folder and from nowhere else: a name that was not found in it stands for
nothing, so none can lead out of it. Links are not followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import orjson

from kvsim.errors import ConfigError, KvsimError
from kvsim.reporting.plan_data import PlanData, read_plan
from kvsim.runs import FILES, MANIFEST, RunResult, load_run
from kvsim.sweeping.database import FILE as LEDGER
from kvsim.sweeping.drive import RUNS
from kvsim.sweeping.results import Row, load_sweep

DEEPEST = 3
MOST_FOUND = 2_000
LARGEST_PLAN = 16_000_000
POINT_LENGTH = 60
Kind = Literal["run", "sweep", "plan"]


class Found(NamedTuple):
    """A folder or file that may hold results."""

    name: str
    """Its place under the folder of runs."""
    kind: Kind
    path: str
    stamp: int
    """Changes when its content does."""


class Shelf(NamedTuple):
    """Everything that could be read, by name; the problems of everything else."""

    runs: dict[str, RunResult]
    plans: dict[str, PlanData]
    problems: dict[str, str]


def scan(root: Path) -> list[Found]:
    """What there is, in the order of names; at most :data:`MOST_FOUND`."""
    found: list[Found] = []
    for folder, below, files in os.walk(root):
        here = Path(folder)
        depth = len(here.relative_to(root).parts)
        kind = kind_of(files)
        if kind == "run" or depth == DEEPEST:
            below.clear()
        below[:] = sorted(name for name in below if not name.startswith("."))
        if kind == "sweep" and RUNS in below:
            below.remove(RUNS)  # its runs are found through the ledger
        if kind:
            found.append(entry(root, here, kind, here / (MANIFEST if kind == "run" else LEDGER)))
        if kind != "run":
            plans = sorted(name for name in files if name.endswith(".json"))
            found += [entry(root, here / name, "plan", here / name) for name in plans]
        if len(found) >= MOST_FOUND:
            break
    return sorted(found[:MOST_FOUND])


def kind_of(files: list[str]) -> Kind | None:
    """What a folder with these files is."""
    if LEDGER in files:
        return "sweep"
    return "run" if set(FILES) & set(files) else None


def entry(root: Path, path: Path, kind: Kind, changing: Path) -> Found:
    """A thing that was found; one that is the root itself has the root's name."""
    inside = path.relative_to(root).as_posix()
    name = root.name if inside == "." else inside
    try:
        stamp = changing.stat(follow_symlinks=False).st_mtime_ns
    except OSError:
        stamp = 0
    return Found(readable(name), kind, readable(str(path)), stamp)


def readable(name: str) -> str:
    """A name of the disk as text; one that is none leads to nothing."""
    return name.encode(errors="backslashreplace").decode()


def read(found: tuple[Found, ...]) -> Shelf:
    """Read what was found."""
    shelf = Shelf({}, {}, {})
    for each in found:
        try:
            if each.kind == "run":
                shelf.runs[each.name] = run_in(Path(each.path), each.name)
            elif each.kind == "sweep":
                shelf.runs.update(swept(each))
            elif (plan := plan_in(Path(each.path))) is not None:
                shelf.plans[each.name] = plan
        except KvsimError as error:
            shelf.problems[each.name] = without_folder(str(error), each)
    return shelf


def without_folder(text: str, found: Found) -> str:
    """A message with places as they are called here."""
    return text.replace(found.path, found.name)


def run_in(path: Path, name: str) -> RunResult:
    """The run of a folder, none of whose files may be a link to somewhere else."""
    for file in FILES:
        if os.path.lexists(path / file):  # what is missing is told with the run
            require_own(path / file)
    found = load_run(path)
    return RunResult(name, found.manifest, found.summary, path)


def require_own(path: Path) -> None:
    """ConfigError for a link, which may lead anywhere, and for what is no file: a pipe has no end."""
    if path.is_symlink():
        raise ConfigError(f"{path} is a link, which is not followed")
    if not path.is_file():
        raise ConfigError(f"{path} is no file")


def swept(found: Found) -> Iterator[tuple[str, RunResult]]:
    """The finished configurations of a sweep, with their tables if it kept them."""
    folder = Path(found.path)
    require_own(folder / LEDGER)
    for row in load_sweep(folder):
        result = row.entry.result
        if result is None:
            continue
        name = f"{found.name} {point_of(row)}"
        kept = folder / RUNS / row.entry.key.name
        if all((kept / file).is_file() and not (kept / file).is_symlink() for file in FILES):
            yield name, run_in(kept, name)
        else:
            manifest, summary = cast("Any", result["manifest"]), cast("Any", result["summary"])
            yield name, RunResult(name, manifest, summary)


def point_of(row: Row) -> str:
    """What a configuration sets, short enough for a legend."""
    values = (
        value if not isinstance(value, dict) else value.get("name")
        for value in row.entry.point.values()
    )
    text = ", ".join(str(value) for value in values)
    return f"#{row.entry.position + 1} {text}"[:POINT_LENGTH]


def plan_in(path: Path) -> PlanData | None:
    """The plan that a JSON file holds; None for any other JSON."""
    try:
        require_own(path)
        if path.stat().st_size > LARGEST_PLAN:
            return None
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if not isinstance(value, dict) or not value.keys() >= {"candidates", "objective", "hash"}:
        return None
    return read_plan(value, str(path))
