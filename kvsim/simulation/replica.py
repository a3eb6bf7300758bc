"""One engine: a scheduler, its memory and the time that its iterations take."""

from __future__ import annotations

from collections.abc import Callable

from simpy import Event

from kvsim.core import BatchShape, Leap, Sequence
from kvsim.protocols import Allocator, Batch, CostModel, Observer, Scheduler
from kvsim.simulation.events import Call, Clock, end_of, start_of


class Replica:
    """Runs one batch after another; a batch is an iteration or a leap over many equal ones.

    ``max_model_len`` bounds prompt and answer together (None: only the memory does).
    """

    def __init__(
        self,
        index: int,
        scheduler: Scheduler,
        allocator: Allocator,
        cost_model: CostModel,
        *,
        max_model_len: int | None = None,
        check: bool = False,
    ) -> None:
        self.index = index
        self._end = end_of(index)
        self.scheduler = scheduler
        self.allocator = allocator
        self._cost_model = cost_model
        self._max_model_len = max_model_len
        self._check = check
        self._waits: Callable[[], int] | None = getattr(allocator, "waits", None)
        """Picoseconds that the next iteration waits for its memory, of an allocator that maps it."""
        self._refuses: Callable[[Sequence, int], str | None] = getattr(
            allocator, "refuses", lambda *_: None
        )
        """Why a sequence of so many tokens exceeds its tenant's quota, of an allocator that has any."""
        self._batch: Batch | None = None
        self._steps = 0
        self._span = 0
        self._start = 0
        self._left_waiting = 0
        self._held = 0
        self._grown: int | None = None
        self._late = 0
        self._next: Call | None = None

    @property
    def immediate(self) -> bool:
        """Whether an idle engine begins at the very instant at which a request arrives."""
        return True

    def attach(self, env: Clock, observer: Observer, ended: Callable[[Sequence], None]) -> None:
        """Join a simulation; ``ended`` is told of every sequence that finishes."""
        self._env = env
        self._observer = observer
        self._ended = ended

    @property
    def queue_length(self) -> int:
        """Requests waiting or running."""
        return self.scheduler.waiting_count + self.scheduler.running_count

    def refusal(self, sequence: Sequence) -> str | None:
        """Why the sequence can never be served here; None if it can."""
        request = sequence.request
        tokens = request.prompt_tokens + request.output_tokens
        if self._max_model_len is not None and tokens > self._max_model_len:
            return f"{tokens} tokens exceed max_model_len {self._max_model_len}"
        if not self.allocator.fits(tokens - 1):  # the last token's KV is never computed
            return f"{tokens} tokens exceed the KV pool of {self.allocator.total_slots} slots"
        if reason := self._refuses(sequence, tokens - 1):
            return reason
        return self._refusal_of_group(sequence, tokens) if request.width > 1 else None

    def _refusal_of_group(self, sequence: Sequence, tokens: int) -> str | None:
        width, widest = sequence.request.width, self.scheduler.widest
        if width > widest:
            return f"{width} sequences exceed the {widest} of a request that the scheduler runs"
        if not self.allocator.fits_group(sequence, tokens - 1):
            slots = self.allocator.total_slots
            return f"{width} sequences of {tokens} tokens exceed the KV pool of {slots} slots"
        return None

    def submit(self, sequence: Sequence) -> None:
        """A request arrives now. An idle engine wakes; a leap that it changes is cut."""
        self.scheduler.add(sequence)
        if self._next is None:
            self._plan_start()
        elif (
            self._batch is not None
            and self._steps > 1
            # Who cannot join ends a leap too if nobody waited yet: from the boundary on somebody does.
            and (self._batch.open or not self._left_waiting)
        ):
            self._cut(self._batch)

    def _cut(self, batch: Batch) -> None:
        """End the leap with the first iteration that ends now or later."""
        span = self._env.now - self._start
        steps = self._steps_until(batch, span)
        if steps < self._steps and self._next is not None:
            self._next.drop()
            self._launch(batch, steps)

    def _steps_until(self, batch: Batch, span: int) -> int:
        """The fewest steps that take ``span`` picoseconds or more, at most those of the leap."""
        low, high = 0, self._steps
        before, after = 0, self._span
        while high - low > 1:
            # Interpolate: the steps of one leap take nearly equal times.
            guess = low + (high - low) * (span - before) // (after - before)
            middle = min(max(guess, low + 1), high - 1)
            time = self._cost_model.time(batch.shape, middle)
            if time < span:
                low, before = middle, time
            else:
                high, after = middle, time
        return high

    def _launch(self, batch: Batch, steps: int) -> None:
        self._steps = steps
        self._span = self._cost_model.time(batch.shape, steps) + batch.stall
        self._next = Call(self._env, self._start + self._span, self._end, self._finish)

    def _plan_start(self) -> None:
        """Decide once all that ends or arrives now has done so."""
        self._batch = None
        self._next = Call(self._env, self._env.now, start_of(self.index), self._wake)

    def _wake(self, _: Event) -> None:
        self._schedule(self._env.now)

    def _schedule(self, now: int) -> None:
        self._batch = batch = self.scheduler.schedule(now)
        self._next = None
        if batch is None:
            self._observer.idle(self.index, self.allocator)
            return
        if self._waits is not None:
            self._batch = batch = batch._replace(stall=batch.stall + self._waits())
        self._start = now
        self._left_waiting = self.scheduler.waiting_count
        self._held = self.allocator.held_slots
        self._launch(batch, batch.steps)

    def _finish(self, _: Event) -> None:
        now, batch, steps = self._env.now, self._batch, self._steps
        assert batch is not None
        finished = self.scheduler.complete(batch, steps, now)
        self._report(batch, steps, self._left_waiting, finished, now)
        if self._env.has_more_now:
            self._plan_start()
        else:
            self._schedule(now)

    def _report(
        self, batch: Batch, steps: int, waiting: int, finished: list[Sequence], seen: int
    ) -> None:
        """Tell the observer of a batch that has ended, and give back what its finishers held.

        Clients have its tokens at ``seen``.
        """
        self._observer.leap(self._ran(batch.shape, steps, waiting), self.allocator)
        if self.scheduler.gaps:
            self._report_gaps()
        self.scheduler.retire(finished)
        for sequence in finished:
            sequence.finished = seen
            self._observer.finished(sequence, self.index)
            self._ended(sequence)
        if self._check:
            self.check()

    def _ran(self, shape: BatchShape, steps: int, waiting: int) -> Leap:
        """The iterations that have just ended."""
        last = 0
        if steps > 1 and shape.prefill_tokens:
            time = self._cost_model.time
            last = time(shape, steps) - time(shape, steps - 1)
        return Leap(
            self.index,
            self._start,
            self._env.now,
            steps,
            shape,
            waiting,
            self.scheduler.running_count,
            self._held,
            self.scheduler.preemptions,
            last,
            self._grown,
            self._late,
        )

    def _report_gaps(self) -> None:
        for gap in self.scheduler.gaps:
            self._observer.gap(gap)
        self.scheduler.gaps.clear()

    def check(self) -> None:
        """Assert that the books of memory and scheduler balance."""
        self.allocator.check()
        self.scheduler.check()
