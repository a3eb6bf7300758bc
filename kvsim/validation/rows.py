"""A recorded run, iteration by iteration: is it the scheduler, or the time model, that is off?

With the recorded times as the lengths of iterations, nothing is left to predict but the rules: who
runs, who waits, which blocks are held. And every iteration's shape becomes known, so that a cost
model can be held against the recorded time of each.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from typing import Any, NamedTuple

from kvsim.core import PICOSECONDS, BatchShape, Request, Sequence, picoseconds
from kvsim.protocols import Batch, CostModel
from kvsim.routing import RoundRobin
from kvsim.simulation.cluster import simulate
from kvsim.simulation.host import Heat, HostCosts, Launches
from kvsim.simulation.loading import Loading
from kvsim.simulation.pipelined import Flight, Pipelined
from kvsim.simulation.silent import Silent


class Row(NamedTuple):
    """A recorded iteration: its end in seconds, its tokens, and the state once it was processed."""

    end: float
    running: int
    waiting: int
    kv_usage: float
    tokens: int

    @property
    def empty(self) -> bool:
        """Whether it had nothing to do and left nobody."""
        return not (self.running or self.waiting or self.tokens)


FLUSHES = 2
"""Empty iterations after a busy period: one that was in the queue of batches, one that tells who ended."""


class RecordedTimes:
    """Makes the n-th iteration end when the n-th recorded one did; any time after the last."""

    label = "recorded"

    def __init__(self, ends: Seq[float]) -> None:
        self._ends = [picoseconds(end) for end in ends]
        self._now = 0
        self._index = -1

    def begin(self, now: int) -> None:
        """The next iteration begins."""
        self._now = now
        self._index += 1

    def skip(self, count: int) -> None:
        """Some recorded iterations compute nothing."""
        self._index += count

    def time(self, shape: BatchShape, steps: int = 1) -> int:
        """Until the recorded end."""
        if self._index >= len(self._ends):
            return PICOSECONDS // 100
        return max(1, self._ends[self._index] - self._now)


class Forced(Pipelined):
    """An engine whose iterations take the recorded times; notes state and shape of each."""

    def __init__(self, *args: object, times: RecordedTimes, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._times = times
        self.rows: list[Row] = []
        self.shapes: list[tuple[int, int, BatchShape]] = []
        """Start and end in picoseconds, and what was computed."""
        self.disturbed: set[int] = set()
        """Places of iterations whose times contain more than their work."""

    def _take_off(self, flight: Flight, now: int, start: int, *, launch: int = 0) -> None:
        self._times.begin(now)
        super()._take_off(flight, now, start, launch=launch)

    def _schedule(self, now: int, wait: int = 0) -> None:
        super()._schedule(now, wait)
        if self._flight is None and self.rows:
            self._times.skip(FLUSHES)
            self.rows += [Row(now / PICOSECONDS, 0, 0, 0.0, 0)] * FLUSHES
            self.shapes += [(now, now, BatchShape(0, 0))] * FLUSHES

    def _report(
        self, batch: Batch, steps: int, waiting: int, finished: list[Sequence], seen: int
    ) -> None:
        assert self._flight is not None
        assert self._flight.outcome is not None
        tokens = batch.shape.decodes + len(self._flight.outcome.answered)
        self.shapes.append((self._start, self._env.now, batch.shape))
        super()._report(batch, steps, waiting, finished, seen)
        left = self._following.waiting if self._following else self.scheduler.waiting_count
        usage = self.allocator.held_slots / self.allocator.total_slots
        self.rows.append(Row(seen / PICOSECONDS, self.scheduler.running_count, left, usage, tokens))


class ForcedLoading(Forced, Loading):
    """The same for an engine that loads KV from its host; ``launches`` say when its worker looks."""

    def __init__(self, *args: object, launches: Launches, **options: Any) -> None:
        super().__init__(*args, **options)
        self._launches = launches

    def _decide(self, now: int) -> Flight | None:
        flight = super()._decide(now)
        if flight is not None and flight.hold:
            flight.hold = 0  # recorded times have it
            self.disturbed.add(len(self.rows))
        return flight


def replay_rows(requests: Iterable[Request], engine: Forced) -> None:
    """Serve the requests with the recorded times."""
    simulate(requests, [engine], RoundRobin(), Silent())


def equal_rows(recorded: Seq[Row], replayed: Seq[Row]) -> list[bool]:
    """Whether both agree on everything after each iteration (KV usage to the recorded six digits)."""
    return [
        ours[1:3] == theirs[1:3]
        and ours.tokens == theirs.tokens
        and abs(ours.kv_usage - theirs.kv_usage) < 2e-6
        for ours, theirs in zip(replayed, recorded, strict=False)
    ]


class StepError(NamedTuple):
    """Iterations of one kind: their number, recorded and modelled seconds, and the relative error."""

    steps: int
    measured: float
    predicted: float

    @property
    def rel_error(self) -> float:
        """Signed."""
        return self.predicted / self.measured - 1


class Step(NamedTuple):
    """An iteration between two others of its kind: what it computed, recorded and modelled seconds.

    A recorded time contains the launch of the next batch, so those beside a change of kind mislead.
    """

    shape: BatchShape
    measured: float
    predicted: float
    saved: float
    """Seconds by which the model's time is less since the GPU had rested."""


LATE = 4
"""Iterations after idling whose records are late, and then catch up."""


def steady(forced: Forced, recorded: Seq[Row], cost: CostModel, host: HostCosts) -> list[Step]:
    """The iterations that a step-time model can be held against: those that the replay has right.

    The model's time is that of the GPU, or of launching it if that takes longer.
    """
    right, heat = equal_rows(recorded, forced.rows), Heat(host.boost, host.boosted)
    known, found, busy = forced.shapes[: len(recorded)], [], 0
    for i, (start, end, shape) in enumerate(known[:-1]):
        time = cost.time(shape) if end > start else 0
        saved = heat.follow(start, time, heavy=host.launches.heavy(shape))
        before, after = known[i - 1], known[i + 1]
        busy = busy + 1 if before[0] < before[1] == start < end else 0
        alike = kind(before[2]) == kind(shape) == kind(after[2])
        if busy >= LATE and alike and right[i] and i not in forced.disturbed:
            model = max(time - saved, host.launches.time(shape))
            seconds = [one / PICOSECONDS for one in (end - start, model, saved)]
            found.append(Step(shape, *seconds))
    return found


def step_errors(steps: Seq[Step]) -> dict[str, StepError]:
    """The model's error by kind of batch."""
    kinds: dict[str, list[Step]] = {}
    for step in steps:
        kinds.setdefault(kind(step.shape), []).append(step)
    return {
        name: StepError(len(some), sum(s.measured for s in some), sum(s.predicted for s in some))
        for name, some in sorted(kinds.items())
    }


def kind(shape: BatchShape) -> str:
    """Pure decode, pure prefill, or mixed."""
    if not shape.prefill_tokens:
        return "decode"
    return "mixed" if shape.decodes else "prefill"
