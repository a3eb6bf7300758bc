"""What a worker does: read one task, replay it, say what came of it. Both are JSON.

As a process (``python -m kvsim.sweeping.worker``) it does so for each line of standard input.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
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


def serve() -> None:
    """Perform the tasks of standard input until it ends; then end at once, whatever is being done."""
    outcomes = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # What plug-ins print must not come between the outcomes.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with suppress(BrokenPipeError):
        for task in _tasks():
            outcomes.write(perform(task) + b"\n")
            outcomes.flush()


def _tasks() -> Iterator[bytes]:
    waiting: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(waiting,), daemon=True).start()
    while True:
        yield waiting.get()


def _read(waiting: SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        waiting.put(line)
    os._exit(0)  # nobody is left to hear of an outcome


if __name__ == "__main__":
    serve()
