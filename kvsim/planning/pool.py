"""Runs many searches side by side in processes; what they find does not depend on how many."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from kvsim.planning.archive import Memory
from kvsim.planning.trial import Outcome, Trial
from kvsim.simulation.parallel import end, obey_the_parent

T = TypeVar("T")
R = TypeVar("R")

Search = Generator[Sequence[Trial], list[Outcome], T]
"""Yields the trials that it wants next, all at once, and is sent their outcomes in that order."""


class Work(Protocol[R]):
    """Something that another process can do, and whose result can be remembered as text."""

    @property
    def key(self) -> str:
        """Names everything that the result depends on, apart from the trace's content."""
        ...

    def run(self) -> R:
        """Do it."""
        ...

    def written(self, found: R) -> str | None:
        """The result as text; None if it is too large for that."""
        ...

    def read(self, text: str) -> R:
        """The result that was written."""
        ...


@dataclass(slots=True)
class Job(Generic[R]):
    """Work that was begun."""

    work: Work[R]
    future: Future[R]
    remembered: bool


class Inline(Executor):
    """Does the work at once, in this process."""

    def submit(self, fn: Callable[..., R], /, *args: object, **kwargs: object) -> Future[R]:
        """A future that is done."""
        future: Future[R] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Lab:
    """Processes, and the outcome of every trial so far: a context manager.

    What ``memory`` knows is not run again. The first mistake ends all work, as does an interrupt; no process is left behind.
    """

    def __init__(
        self,
        jobs: int,
        told: Callable[[int], None] = lambda count: None,
        memory: Memory | None = None,
    ) -> None:
        self._jobs = jobs
        self._told = told
        self._memory = memory
        self._known: dict[str, Job[Outcome]] = {}
        self._executor: Executor = Inline()

    def __enter__(self) -> Self:
        if self._jobs > 1:
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(
                self._jobs, mp_context=context, initializer=obey_the_parent
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and isinstance(self._executor, ProcessPoolExecutor):
            end(self._executor)
        self._executor.shutdown()

    @property
    def trials(self) -> int:
        """Replays that the answers rest on, run now or remembered."""
        return len(self._known)

    def each(self, works: Sequence[Work[R]]) -> list[R]:
        """The results of independent work, in order."""
        return [self._result(job) for job in [self._begin(work) for work in works]]

    def run(self, searches: Sequence[Search[T]]) -> list[T]:
        """What each search finds."""
        found: dict[int, T] = {}
        waiting: dict[int, list[Job[Outcome]]] = {}
        for number, search in enumerate(searches):
            self._step(number, search, None, waiting, found)
        while waiting:
            running = [job.future for jobs in waiting.values() for job in jobs]
            wait([future for future in running if not future.done()], None, FIRST_COMPLETED)
            ready = [n for n, jobs in waiting.items() if all(job.future.done() for job in jobs)]
            for number in ready:
                outcomes = [self._result(job) for job in waiting.pop(number)]
                self._step(number, searches[number], outcomes, waiting, found)
        return [found[number] for number in range(len(searches))]

    def _step(
        self,
        number: int,
        search: Search[T],
        outcomes: list[Outcome] | None,
        waiting: dict[int, list[Job[Outcome]]],
        found: dict[int, T],
    ) -> None:
        """Let a search go on until it wants something, or has found what it sought."""
        try:
            wanted = next(search) if outcomes is None else search.send(outcomes)
            waiting[number] = [self._trial(trial) for trial in wanted]
        except StopIteration as end:
            found[number] = end.value

    def _trial(self, trial: Trial) -> Job[Outcome]:
        """A trial, begun only the first time that it is asked for; one that was run whole says more."""
        told = self._known.get(replace(trial, whole=True, keep=False).key)
        if told is not None:
            return told
        if trial.key not in self._known:
            self._known[trial.key] = self._begin(trial)
            self._told(len(self._known))
        return self._known[trial.key]

    def _begin(self, work: Work[R]) -> Job[R]:
        """Have work done, unless its result is remembered."""
        text = None if self._memory is None else self._memory.find(work.key)
        if text is None:
            return Job(work, self._executor.submit(_run, work), remembered=False)
        future: Future[R] = Future()
        future.set_result(work.read(text))
        return Job(work, future, remembered=True)

    def _result(self, job: Job[R]) -> R:
        """What came of it, from now on remembered."""
        found = job.future.result()
        if self._memory is not None and not job.remembered:
            text = job.work.written(found)
            if text is not None:
                self._memory.keep(job.work.key, text)
            job.remembered = True
        return found


def _run(work: Work[R]) -> R:
    return work.run()
