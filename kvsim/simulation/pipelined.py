"""An engine with asynchronous scheduling: the next iteration is decided while this one runs."""

from __future__ import annotations

from typing import Protocol

from simpy import Event

from kvsim.core import Sequence
from kvsim.protocols import Batch, Outcome, Scheduler
from kvsim.simulation.events import ENGINE, Call
from kvsim.simulation.replica import Replica


class PipelinedScheduler(Scheduler, Protocol):
    """A scheduler that can go on before it has seen the tokens of the batch in flight."""

    def commit(self, batch: Batch, steps: int) -> Outcome:
        """``steps`` iterations are certain to run: count their tokens."""
        ...

    def linger(self, outcome: Outcome) -> None:
        """Who ends with the outcome holds seat and memory until it is delivered."""
        ...

    def deliver(self, outcome: Outcome, now: int) -> list[Sequence]:
        """The tokens are seen; returns who finished."""
        ...


class Flight:
    """A batch on its way through the engine."""

    __slots__ = ("batch", "outcome", "start", "steps", "waiting")

    def __init__(self, batch: Batch, waiting: int) -> None:
        self.batch = batch
        self.steps = batch.steps
        self.waiting = waiting
        """Requests that were left waiting when it was scheduled."""
        self.start = 0
        self.outcome: Outcome | None = None
        """Known once its last iteration has begun."""


class Pipelined(Replica):
    """Two batches in flight, as in vLLM's asynchronous scheduling (0.23, ``step_with_batch_queue``).

    When an iteration begins, the one after it is scheduled. So a request that arrives waits for the
    rest of the running iteration and for the whole next one; and whoever gets its last token keeps
    its seat and memory until that token is seen, which is after the next iteration was scheduled.
    """

    scheduler: PipelinedScheduler
    _flight: Flight | None = None
    _following: Flight | None = None

    def submit(self, sequence: Sequence) -> None:
        """A request arrives now; leaps that it could join end with the iteration that it waits for."""
        self.scheduler.add(sequence)
        flight, following = self._flight, self._following
        if flight is None:
            if self._next is None:
                self._next = Call(self._env, self._env.now, ENGINE, self._wake)
        elif following is not None:
            if following.batch.open:
                following.steps = 1
        elif flight.outcome is None and flight.batch.open:
            self._shorten(flight)

    def _shorten(self, flight: Flight) -> None:
        boundary = self._steps_until(flight.batch, self._env.now - self._start)
        if boundary + 1 < flight.steps and self._next is not None:
            self._next.drop()
            flight.steps = boundary + 1
            self._begin_last(flight)

    def _schedule(self, now: int) -> None:
        flight = self._decide(now)
        self._flight = self._next = None
        if flight is None:
            self._observer.idle(self.index, self.allocator)
        else:
            self._take_off(flight, now)

    def _decide(self, now: int) -> Flight | None:
        batch = self.scheduler.schedule(now)
        return Flight(batch, self.scheduler.waiting_count) if batch is not None else None

    def _take_off(self, flight: Flight, now: int) -> None:
        self._flight, self._following = flight, None
        self._start = flight.start = now
        if flight.steps > 1:
            self._begin_last(flight)
        else:
            self._prefetch(now)

    def _begin_last(self, flight: Flight) -> None:
        """Wait until the last iteration of a leap begins."""
        self._steps = flight.steps
        self._span = self._cost_model.time(flight.batch.shape, flight.steps)
        last = flight.start + self._cost_model.time(flight.batch.shape, flight.steps - 1)
        self._next = Call(self._env, last, ENGINE, lambda _: self._prefetch(self._env.now))

    def _prefetch(self, now: int) -> None:
        """The last iteration of the batch begins: schedule what follows it."""
        flight = self._flight
        assert flight is not None
        flight.outcome = self.scheduler.commit(flight.batch, flight.steps)
        self.scheduler.linger(flight.outcome)
        self._following = self._decide(now)
        end = flight.start + self._cost_model.time(flight.batch.shape, flight.steps)
        self._next = Call(self._env, end, ENGINE, self._finish)

    def _finish(self, _: Event) -> None:
        now, flight = self._env.now, self._flight
        assert flight is not None
        assert flight.outcome is not None
        finished = self.scheduler.deliver(flight.outcome, now)
        self._report(flight.batch, flight.steps, flight.waiting, finished)
        if self._following is not None:
            self._take_off(self._following, now)
        else:
            self._schedule(now)
