"""Reading recordings of real engines, and what a comparison with one says."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.errors import TraceError, shown


class Mismatch(NamedTuple):
    """The earliest decision that differs."""

    row: int
    field: str
    engine: int | None
    kvsim: int | None
    explanation: str


class Verdict(NamedTuple):
    """How many requests of a recording were decided exactly as the engine decided."""

    requests: int
    exact: int
    first_mismatch: Mismatch | None
    unmodelled: tuple[str, ...] = ()
    """What the engine was started with that is not modelled, a line each."""

    def as_dict(self) -> dict[str, object]:
        """How many, and the first difference, ready for JSON."""
        first = self.first_mismatch and self.first_mismatch._asdict()
        return {"requests": self.requests, "exact": self.exact, "first_mismatch": first}


def load_reference(path: Path) -> dict[str, Any]:
    """The recording as parsed JSON; a TraceError names what is wrong with the file."""
    try:
        raw = path.read_bytes()
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        recording = json.loads(text)
    except IsADirectoryError:
        raise TraceError(
            f"{path}: is a directory; accepted: a recording (.json or .json.gz)"
        ) from None
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or 'not a complete gzip file'}") from None
    except (EOFError, zlib.error, ValueError, RecursionError) as error:
        raise TraceError(f"{path}: not a recording: {error}") from None
    if not isinstance(recording, dict):
        raise TraceError(f"{path}: holds a {type(recording).__name__}; accepted: a JSON object")
    return recording


MOST = 2**53
"""No count in a recording is larger: beyond it, JSON readers disagree."""


def number(path: Path, where: str, table: object, field: str, *, least: int = 0) -> int:
    """A whole number of a recording, ``least`` or more."""
    value = table.get(field) if isinstance(table, Mapping) else None
    if type(value) is not int or not least <= value <= MOST:
        raise TraceError(
            f"{path}: {where}.{field} is {shown(value)}; accepted: a whole number from {least}"
        )
    return value


def rows(path: Path, recording: Mapping[str, Any], field: str) -> list[Any]:
    """A table of a recording: a list that is not empty."""
    table = recording.get(field)
    if not isinstance(table, list) or not table:
        raise TraceError(f"{path}: {field} is missing or empty; accepted: a list")
    return table


def beside(path: Path, workload: Path | None) -> Path:
    """The workload of a recording ``CONFIG__WORKLOAD.json.gz``, given or found beside it."""
    if workload is not None:
        return workload
    name = path.name.split(".json")[0].split("__")[-1]
    candidates = [path.parent / "workloads" / f"{name}.jsonl{end}" for end in ("", ".gz")]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    tried = ", ".join(map(str, candidates))
    raise TraceError(f"{path}: its workload is not beside it (tried {tried}); give --workload")


def earliest(mismatches: Iterable[tuple[int, Mismatch]]) -> Mismatch | None:
    """The mismatch with the earliest time."""
    first = min(mismatches, key=lambda entry: (entry[0], entry[1].row), default=None)
    return first and first[1]
