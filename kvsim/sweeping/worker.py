"""What a worker does: read one task, replay it, say what came of it. Both are JSON."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import NamedTuple

import orjson

from kvsim.errors import KvsimError, TraceError
from kvsim.scenario import Scenario
from kvsim.sweeping.configuration import Key


class Task(NamedTuple):
    """One configuration to run."""

    scenario: str
    """JSON."""
    trace: str
    trace_hash: str
    out: str | None
    """Where the tables go."""

    def encoded(self) -> bytes:
        """The task as JSON."""
        return orjson.dumps(self._asdict())


class Done(NamedTuple):
    """It ran."""

    result: bytes
    """JSON: ``manifest`` and ``summary``."""


class Failed(NamedTuple):
    """It cannot run: another attempt would end in the same way."""

    error: str
    exit_code: int


class Died(NamedTuple):
    """Its worker ended without a word."""

    error: str


Outcome = Done | Failed | Died
Report = tuple[Key, Outcome]


def perform(encoded: bytes) -> bytes:
    """Run an encoded task; the outcome, encoded."""
    try:
        return b'{"result":' + _result(Task(**orjson.loads(encoded))) + b"}"
    except KvsimError as error:
        return _failure(str(error), error.exit_code)
    except Exception as error:
        # A bug, likely of a plug-in: the rest of the sweep is none of its business.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        return _failure(f"{type(error).__name__}: {error} ({place})", KvsimError.exit_code)


def _failure(error: str, exit_code: int) -> bytes:
    return orjson.dumps({"error": " ".join(error.split()), "exit_code": exit_code})


def _result(task: Task) -> bytes:
    from kvsim.compose import simulate

    scenario = Scenario.model_validate_json(task.scenario)
    out = Path(task.out) if task.out is not None else None
    result = simulate(scenario, task.trace, out=out, overwrite=True, keep=False)
    trace = result.manifest["trace"]
    if not isinstance(trace, dict) or trace["sha256"] != task.trace_hash:
        raise TraceError(f"{task.trace}: has changed since the sweep began; run the sweep again")
    return orjson.dumps({"manifest": result.manifest, "summary": result.summary})


def outcome(encoded: bytes) -> Done | Failed:
    """What :func:`perform` has returned, decoded."""
    found = orjson.loads(encoded)
    if "error" in found:
        return Failed(**found)
    return Done(orjson.dumps(found["result"]))
