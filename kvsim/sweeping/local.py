"""Workers as processes of this machine, each with a pipe of its own.

A pool of the standard library ends as a whole when one of its processes dies, and cannot say which
task it was; here a death costs its own task one attempt and nobody else anything. Workers that have
lost their parent, however it ended, end too.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext

from kvsim.sweeping.configuration import Key
from kvsim.sweeping.worker import Died, Outcome, Report, Task, outcome, perform

GRACE = 5.0
"""Seconds that a worker has to clean up when it is told to stop."""


class Worker:
    """A process that performs one task after another."""

    def __init__(self, context: SpawnContext) -> None:
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        with _deaf_to_interrupts():
            self._process.start()
        theirs.close()

    def begin(self, task: bytes) -> None:
        """Hand over a task."""
        # A worker that has died meanwhile is noticed when its answer is read.
        with suppress(BrokenPipeError):
            self.pipe.send_bytes(task)

    def answer(self) -> Outcome:
        """What came of the task; waits for it."""
        try:
            return outcome(self.pipe.recv_bytes())
        except (EOFError, ConnectionResetError):
            self._process.join()
            return Died(f"the worker {_ended(self._process.exitcode)}")

    def end(self) -> None:
        """Stop, even in the middle of a task."""
        self._process.terminate()
        self._process.join(GRACE)
        self._process.kill()
        self._process.join()
        self.pipe.close()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """A process that starts meanwhile never hears Ctrl-C, which is for its parent to act on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ended(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"exited with code {exit_code}"
    name = signal.Signals(-exit_code).name
    hint = " (out of memory?)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"


def _serve(pipe: Connection) -> None:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # stdout is for the results of the sweep
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, BrokenPipeError):
        while True:
            pipe.send_bytes(perform(pipe.recv_bytes()))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class LocalWorkers:
    """Up to ``jobs`` processes, started when they are needed."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._context = multiprocessing.get_context("spawn")
        self._idle: list[Worker] = []
        self._busy: dict[Connection, tuple[Worker, Key]] = {}

    @property
    def room(self) -> int:
        """Tasks that could begin now."""
        return self._jobs - len(self._busy)

    def submit(self, key: Key, task: Task) -> None:
        """Begin a task."""
        worker = self._idle.pop() if self._idle else Worker(self._context)
        self._busy[worker.pipe] = worker, key
        worker.begin(task.encoded())

    def wait(self, seconds: float) -> Sequence[Report]:
        """Outcomes that there are, or come within ``seconds``."""
        reports: list[Report] = []
        for pipe in wait(list(self._busy), seconds):
            assert isinstance(pipe, Connection)
            worker, key = self._busy.pop(pipe)
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
