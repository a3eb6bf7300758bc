"""An engine with asynchronous scheduling: the next iteration is decided while this one runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from simpy import Event

from kvsim.core import Sequence, picoseconds
from kvsim.protocols import Allocator, Batch, CostModel, Outcome, Scheduler
from kvsim.simulation.events import ARRIVAL, Call, start_of
from kvsim.simulation.host import Heat, HostCosts
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

    __slots__ = ("batch", "end", "hold", "outcome", "saved", "span", "start", "steps", "waiting")

    def __init__(self, batch: Batch, waiting: int) -> None:
        self.batch = batch
        self.steps = batch.steps
        self.waiting = waiting
        """Requests that were left waiting when it was scheduled."""
        self.hold = 0
        """Picoseconds that pass before it is launched."""
        self.saved = 0
        """Picoseconds that the GPU, having rested, takes less for it."""
        self.span = 0
        """Picoseconds that its steps take, once that is known."""
        self.start = 0
        """When the GPU begins it: before its last kernel is launched, unless it is one graph."""
        self.end = 0
        """When the GPU ends it, which is seen once the batch after it is launched."""
        self.outcome: Outcome | None = None
        """Known once its last iteration has begun."""


class Pipelined(Replica):
    """Two batches in flight, as in vLLM's asynchronous scheduling (0.23, ``step_with_batch_queue``).

    When an iteration begins, the one after it is scheduled. So a request that arrives waits for the
    rest of the running iteration and for the whole next one; and whoever gets its last token keeps
    its seat and memory until that token is seen, which is after the next iteration was scheduled
    and launched. A decode is scheduled before its input has been sampled: who is preempted then loses
    the block that this token fills (``AsyncScheduler``, and ``num_tokens_to_cache`` in
    ``v1/core/kv_cache_manager.py``). An iteration that preempts and has nothing to run admits nobody
    before the tokens in flight are seen.
    """

    scheduler: PipelinedScheduler

    def __init__(
        self,
        index: int,
        scheduler: PipelinedScheduler,
        allocator: Allocator,
        cost_model: CostModel,
        *,
        host: HostCosts | None = None,
        max_model_len: int | None = None,
        check: bool = False,
    ) -> None:
        super().__init__(
            index, scheduler, allocator, cost_model, max_model_len=max_model_len, check=check
        )
        self._host = host or HostCosts()
        self._flight: Flight | None = None
        self._following: Flight | None = None
        self._heat = Heat(self._host.boost, self._host.boosted)
        self._burst: list[Sequence] = []  # requests that the front end has not handed over
        self._burst_start = 0
        self._hand_over: Call | None = None
        self._coming = 0  # requests on their way from the front end
        self._latest = 0  # when the last of them gets there: first in, first out

    @property
    def queue_length(self) -> int:
        """Requests on their way to the engine, waiting or running."""
        return len(self._burst) + self._coming + super().queue_length

    @property
    def immediate(self) -> bool:
        """Not with a front end on the way, or a core that must wake."""
        return not self._host.front_end and not self._host.wake

    def submit(self, sequence: Sequence) -> None:
        """A request arrives at the front end now, which takes in a whole burst before it goes on."""
        if not self._host.front_end:
            self._receive(sequence)
            return
        now = self._env.now
        if self._hand_over is None:
            self._burst_start = now
        else:
            self._hand_over.drop()
        self._burst.append(sequence)
        latest = max(now, self._burst_start + picoseconds(self._host.longest_burst))
        at = min(now + picoseconds(self._host.front_end), latest)
        self._hand_over = Call(self._env, at, ARRIVAL, self._send_burst)

    def _send_burst(self, _: Event) -> None:
        burst, self._burst, self._hand_over = self._burst, [], None
        for sequence in burst:
            tokens = sequence.request.prompt_tokens
            delay = picoseconds(tokens * self._host.front_end_per_token)
            self._latest = max(self._latest, self._env.now + delay)
            self._coming += 1
            Call(self._env, self._latest, ARRIVAL, partial(self._arrive, sequence))

    def _arrive(self, sequence: Sequence, _: Event) -> None:
        self._coming -= 1
        self._receive(sequence)

    def _receive(self, sequence: Sequence) -> None:
        self.scheduler.add(sequence)
        self._notice()

    def _notice(self) -> None:
        """Somebody could join: leaps end with what he waits for, and an idle engine wakes."""
        flight, following = self._flight, self._following
        if following is not None:
            if following.batch.open:
                following.steps = 1
        elif flight is None:
            if self._next is None:
                self._plan(self._env.now + picoseconds(self._host.wake), self._wake)
        elif flight.outcome is None and flight.batch.open:
            self._shorten(flight)

    def _plan(self, at: int, step: Callable[[Event], None]) -> None:
        """Decide something at an instant, after all that ends or arrives then."""
        self._next = Call(self._env, at, start_of(self.index), step)

    def _shorten(self, flight: Flight) -> None:
        boundary = self._steps_until(flight.batch, self._env.now - self._start)
        if boundary + 1 < flight.steps and self._next is not None:
            self._next.drop()
            flight.steps = boundary + 1
            self._begin_last(flight)

    def _wake(self, _: Event) -> None:
        """The first iteration after idling takes long to launch; only then is the next scheduled."""
        self._schedule(self._env.now, wait=picoseconds(self._host.idle_launch))

    def _schedule(self, now: int, wait: int = 0) -> None:
        flight = self._decide(now)
        self._flight = self._next = None
        if flight is None:
            self._heat.rest(now)
            self._observer.idle(self.index, self.allocator)
        else:
            launch = max(wait, self._host.launches.time(flight.batch.shape))
            self._take_off(flight, now, now, launch=launch)

    def _decide(self, now: int) -> Flight | None:
        batch = self.scheduler.schedule(now)
        return Flight(batch, self.scheduler.waiting_count) if batch is not None else None

    def _take_off(self, flight: Flight, now: int, start: int, *, launch: int = 0) -> None:
        """An iteration begins, whose first kernels the GPU has had since ``start``.

        Where it was not launched before, ``launch`` passes until the next one is scheduled.
        """
        self._flight, self._following = flight, None
        self._start, flight.start = now, start
        self._held = self.allocator.held_slots
        heavy = self._host.launches.heavy(flight.batch.shape)
        time = self._cost_model.time(flight.batch.shape, 1) if heavy else 0
        flight.saved = self._heat.follow(start, time, heavy=heavy)
        if flight.steps > 1 and (
            launch or start < now or flight.saved or self._launch_bound(flight)
        ):
            flight.steps = 1  # the host decides how long it takes
        if heavy and flight.steps == 1:
            flight.span = time
        if flight.steps > 1:
            self._begin_last(flight)
        elif launch:
            shape = flight.batch.shape
            least = now + self._host.launches.time(shape)
            end = max(least, now + self._took(flight))
            self._plan(min(now + launch, end), partial(self._launched, least=least))
        else:
            self._prefetch(now)

    def _launch_bound(self, flight: Flight) -> bool:
        """Whether launching an iteration may take longer than the GPU takes for the one before it.

        The last of a leap's takes longest to launch: its prompt has most behind it.
        """
        shape, more = flight.batch.shape, flight.steps - 1
        past = shape.prefill_context + more * shape.prefill_tokens
        last = shape._replace(prefill_context=past)
        return self._host.launches.time(last) > self._cost_model.time(shape, 1)

    def _launched(self, _: Event, *, least: int = 0) -> None:
        self._prefetch(self._env.now, least)

    def _begin_last(self, flight: Flight) -> None:
        """Wait until the last iteration of a leap begins."""
        self._steps = flight.steps
        self._span = flight.span = self._cost_model.time(flight.batch.shape, flight.steps)
        last = flight.start + self._cost_model.time(flight.batch.shape, flight.steps - 1)
        self._plan(last, self._launched)

    def _prefetch(self, now: int, least: int = 0) -> None:
        """The last iteration of the batch begins: schedule and launch what follows it."""
        flight = self._flight
        assert flight is not None
        flight.outcome = self.scheduler.commit(flight.batch, flight.steps)
        self.scheduler.linger(flight.outcome)
        self._grown = self.allocator.held_slots
        self._following = following = self._decide(now)
        flight.end = max(flight.start + self._took(flight), least, self._start + 1)
        seen = flight.end
        if following is not None:
            if following.hold:
                flight.end = max(flight.end, now + following.hold)
            launched = now + following.hold + self._host.launches.time(following.batch.shape)
            seen = max(flight.end, launched)
        self._next = Call(self._env, seen, self._end, self._finish)

    def _took(self, flight: Flight) -> int:
        """Picoseconds that the GPU takes for a batch."""
        if not flight.span:
            flight.span = self._cost_model.time(flight.batch.shape, flight.steps)
        return flight.span - flight.saved + flight.batch.stall

    def _finish(self, _: Event) -> None:
        now, flight = self._env.now, self._flight
        assert flight is not None
        assert flight.outcome is not None
        seen = now + picoseconds(self._host.to_client)
        finished = self.scheduler.deliver(flight.outcome, seen)
        self._late = now - flight.start - flight.span if flight.steps > 1 else 0
        self._report(flight.batch, flight.steps, flight.waiting, finished, seen)
        self._flight = None
        if self._env.has_more_now:
            self._plan(now, partial(self._go_on, flight.end))
        else:
            self._go_on(flight.end)

    def _go_on(self, end: int, _: Event | None = None) -> None:
        """The next batch, if there is one, begins now, or has since the GPU was free."""
        now, following = self._env.now, self._following
        if following is None:
            self._schedule(now)
        else:
            streams = self._host.launches.streams(following.batch.shape)
            self._take_off(following, now, end if streams else now)
