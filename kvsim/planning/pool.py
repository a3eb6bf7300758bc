"""Runs many searches side by side in processes; what they find does not depend on how many."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from types import FrameType, TracebackType
from typing import Protocol, Self, TypeVar

from kvsim.planning.trial import Outcome, Trial

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")

Search = Generator[Sequence[Trial], list[Outcome], T]
"""Yields the trials that it wants next, all at once, and is sent their outcomes in that order."""


class Work(Protocol[R_co]):
    """Something that another process can do."""

    def run(self) -> R_co:
        """Do it."""
        ...


class Inline(Executor):
    """Does the work at once, in this process."""

    def submit(self, fn: Callable[..., R], /, *args: object, **kwargs: object) -> Future[R]:
        """A future that is done."""
        future: Future[R] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Lab:
    """Processes, and the outcome of every trial so far: a context manager.

    The first mistake ends all work, as does an interrupt; no process is left behind.
    """

    def __init__(self, jobs: int, told: Callable[[int], None] = lambda count: None) -> None:
        self._jobs = jobs
        self._told = told
        self._known: dict[str, Future[Outcome]] = {}
        self._executor: Executor = Inline()

    def __enter__(self) -> Self:
        if self._jobs > 1:
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(
                self._jobs, mp_context=context, initializer=_obey_the_parent
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and self._jobs > 1:
            self._executor.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()
        self._executor.shutdown()

    @property
    def trials(self) -> int:
        """Replays that were run."""
        return len(self._known)

    def each(self, works: Sequence[Work[R]]) -> list[R]:
        """The results of independent work, in order."""
        futures = [self._executor.submit(_run, work) for work in works]
        return [future.result() for future in futures]

    def run(self, searches: Sequence[Search[T]]) -> list[T]:
        """What each search finds."""
        found: dict[int, T] = {}
        waiting: dict[int, list[Future[Outcome]]] = {}
        for number, search in enumerate(searches):
            self._step(number, search, None, waiting, found)
        while waiting:
            wait(
                [f for fs in waiting.values() for f in fs if not f.done()] or [],
                None,
                FIRST_COMPLETED,
            )
            for number in [n for n, fs in waiting.items() if all(f.done() for f in fs)]:
                outcomes = [future.result() for future in waiting.pop(number)]
                self._step(number, searches[number], outcomes, waiting, found)
        return [found[number] for number in range(len(searches))]

    def _step(
        self,
        number: int,
        search: Search[T],
        outcomes: list[Outcome] | None,
        waiting: dict[int, list[Future[Outcome]]],
        found: dict[int, T],
    ) -> None:
        """Let a search go on until it wants something, or has found what it sought."""
        try:
            wanted = next(search) if outcomes is None else search.send(outcomes)
            waiting[number] = [self._trial(trial) for trial in wanted]
        except StopIteration as end:
            found[number] = end.value

    def _trial(self, trial: Trial) -> Future[Outcome]:
        """The outcome of a trial, which runs only the first time that it is asked for."""
        key = trial.key
        if key not in self._known:
            self._known[key] = self._executor.submit(_run, trial)
            self._told(len(self._known))
        return self._known[key]


def _run(work: Work[R]) -> R:
    return work.run()


def _obey_the_parent() -> None:
    """Leave Ctrl-C, which reaches the whole group, to the parent; clean up when it says to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
