"""A replica whose iterations are executed: the clock is the wall's, idle waits are skipped."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from time import perf_counter_ns
from typing import Protocol

from kvsim.core import Sequence
from kvsim.protocols import Allocator, Batch, CostModel, Scheduler
from kvsim.simulation.events import Call
from kvsim.simulation.replica import Replica

NANOSECOND = 1_000
"""Picoseconds."""


class Executor(Protocol):
    """Computes iterations."""

    def execute(self, prompts: Seq[tuple[Sequence, int]], decodes: Seq[Sequence]) -> None:
        """Compute the next tokens of the prompts (how many of each) and one token of each decode.

        Returns when every token that the iteration yields is known to the host.
        """
        ...

    def finish(self, sequence: Sequence) -> None:
        """The sequence has its last token; called once, outside what is timed."""
        ...


class ExecutedScheduler(Scheduler, Protocol):
    """A scheduler that knows by name whom its batch decodes."""

    def decoding(self) -> list[Sequence]:
        """Sequences that the batch in flight decodes."""
        ...


class Executed(Replica):
    """Executes each batch when it is decided and takes as long as that took.

    The duration of an iteration runs from the end of the one before it, or from the moment at which an
    idle engine wakes: deciding, filling block tables, launching, computing, reading the tokens back and
    recording are all in it. While nothing runs the clock jumps to the next arrival.
    """

    scheduler: ExecutedScheduler

    def __init__(
        self,
        index: int,
        scheduler: ExecutedScheduler,
        allocator: Allocator,
        cost_model: CostModel,
        *,
        executor: Executor,
        max_model_len: int | None = None,
        check: bool = False,
        now: Callable[[], int] = perf_counter_ns,
    ) -> None:
        super().__init__(
            index, scheduler, allocator, cost_model, max_model_len=max_model_len, check=check
        )
        self._executor = executor
        self._wall = now
        self._began = 0
        """Nanoseconds of the wall's clock at which the iteration began."""
        self._until = -1
        """When the latest iteration ended, on the simulation's clock."""

    def _schedule(self, now: int) -> None:
        if now != self._until:
            self._began = self._wall()
        super()._schedule(now)

    def _launch(self, batch: Batch, steps: int) -> None:
        assert steps == 1, "an executed engine takes no leaps"
        self._executor.execute(batch.prompts, self.scheduler.decoding())
        ended = self._wall()
        self._steps = steps
        self._span = (ended - self._began) * NANOSECOND
        self._until = self._start + self._span
        self._began = ended
        self._next = Call(self._env, self._until, self._end, self._finish)

    def _report(
        self, batch: Batch, steps: int, waiting: int, finished: list[Sequence], seen: int
    ) -> None:
        super()._report(batch, steps, waiting, finished, seen)
        paused = self._wall()
        for sequence in finished:
            self._executor.finish(sequence)
        self._began += self._wall() - paused
