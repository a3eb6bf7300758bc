"""Workers as processes of this machine, each with pipes of its own.

A pool of the standard library ends as a whole when one of its processes dies, and cannot say which
task it was; here a death costs its own task one attempt and nobody else anything. The processes are
in sessions of their own, so that Ctrl-C is for their parent alone to act on, and end when it does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import IO

from kvsim.sweeping.configuration import Key
from kvsim.sweeping.worker import Died, Outcome, Report, Task, outcome


class Worker:
    """A process that performs one task after another."""

    def __init__(self) -> None:
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kvsim.sweeping.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._tasks: IO[bytes] = self._process.stdin
        self.outcomes: IO[bytes] = self._process.stdout

    def begin(self, task: Task) -> None:
        """Hand over a task."""
        # A worker that has died meanwhile is noticed when its answer is read.
        with suppress(BrokenPipeError):
            self._tasks.write(task.encoded() + b"\n")
            self._tasks.flush()

    def answer(self) -> Outcome:
        """What came of the task; waits for it."""
        line = self.outcomes.readline()
        if line.endswith(b"\n"):
            return outcome(line)
        return Died(f"the worker {_ended(self._process.wait())}")

    def end(self) -> None:
        """Stop, even in the middle of a task."""
        self._process.kill()
        self._process.wait()
        self.outcomes.close()
        with suppress(BrokenPipeError):
            self._tasks.close()


def _ended(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exited with code {exit_code}"
    name = signal.Signals(-exit_code).name
    hint = " (out of memory?)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"


class LocalWorkers:
    """Up to ``jobs`` processes, started when they are needed."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._idle: list[Worker] = []
        self._busy: dict[int, tuple[Worker, Key]] = {}
        """By the file descriptor that the outcome comes from."""

    @property
    def room(self) -> int:
        """Tasks that could begin now."""
        return self._jobs - len(self._busy)

    def submit(self, key: Key, task: Task) -> None:
        """Begin a task."""
        worker = self._idle.pop() if self._idle else Worker()
        self._busy[worker.outcomes.fileno()] = worker, key
        worker.begin(task)

    def wait(self, seconds: float) -> Sequence[Report]:
        """Outcomes that there are, or come within ``seconds``."""
        reports: list[Report] = []
        for descriptor in wait(list(self._busy), seconds):
            assert isinstance(descriptor, int)
            worker, key = self._busy.pop(descriptor)
            found = worker.answer()
            if isinstance(found, Died):
                worker.end()
            else:
                self._idle.append(worker)
            reports.append((key, found))
        return reports

    def close(self) -> None:
        """End all workers."""
        for worker in (*self._idle, *(worker for worker, _ in self._busy.values())):
            worker.end()
        self._idle.clear()
        self._busy.clear()
