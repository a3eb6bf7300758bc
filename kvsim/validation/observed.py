"""What a simulated engine shows to its clients and in its log."""

from __future__ import annotations

from typing import NamedTuple

from kvsim.core import PICOSECONDS, Leap, Request, Sequence
from kvsim.errors import CapacityError
from kvsim.protocols import Allocator
from kvsim.simulation.silent import Silent


class Outcome(NamedTuple):
    """What a client saw of one request, seconds since its call; and its counters."""

    submit: float
    ttft: float
    e2e: float
    output: int
    cached: int | None
    """Prompt tokens that hit when it was last admitted before its first token; None if not recorded."""

    @property
    def tpot(self) -> float:
        """Time per output token after the first, seconds."""
        return (self.e2e - self.ttft) / (self.output - 1)


class Stretch(NamedTuple):
    """Equal iterations: their start and end in seconds, and the state that they leave."""

    start: float
    end: float
    steps: int
    decodes: int
    kv_usage: float
    waiting: int
    running: int
    preemptions: int
    """So far, of all replicas."""


class Observed(Silent):
    """Notes requests and iterations; times are multiplied by ``slowness``."""

    def __init__(self, slowness: float = 1.0) -> None:
        self.requests: dict[int, Outcome] = {}
        self.torn: list[tuple[float, float]] = []
        """Seconds between tokens before and after a preemption, and when."""
        self.stretches: list[Stretch] = []
        self.refused: dict[int, str] = {}
        """Why a request was not served, by row."""
        self._preempted: dict[int, int] = {}
        self._second = PICOSECONDS / slowness

    def leap(self, leap: Leap, allocator: Allocator) -> None:
        """Note the iterations."""
        grown = allocator.held_slots if leap.grown is None else leap.grown
        self._before = (leap.held + grown) / 2 * (leap.steps - 1)
        self._steps, self._allocator = leap.steps, allocator
        usage = self._usage()
        self._preempted[leap.replica] = leap.preemptions
        start, left = leap.start, leap.steps
        for gap, count in leap.gaps():
            left -= count
            end = start + gap * count if left else leap.end
            stretch = Stretch(
                start / self._second,
                end / self._second,
                count,
                leap.shape.decodes,
                usage,
                leap.waiting,
                leap.running,
                sum(self._preempted.values()),
            )
            self.stretches.append(stretch)
            start = end

    def _usage(self) -> float:
        """Mean share of the memory after each of the latest iterations, as an engine logs it."""
        held = (self._before + self._allocator.held_slots) / self._steps
        return held / self._allocator.total_slots

    def gap(self, picoseconds: int) -> None:
        """Note a gap that a preemption tore."""
        now = self.stretches[-1].end if self.stretches else 0.0
        self.torn.append((picoseconds / self._second, now))

    def finished(self, sequence: Sequence, replica: int) -> None:
        """Note what its client saw, and that its memory is free."""
        self.stretches[-1] = self.stretches[-1]._replace(kv_usage=self._usage())
        assert sequence.first_token is not None
        assert sequence.finished is not None
        called = sequence.arrival
        self.requests[sequence.request.row] = Outcome(
            called / self._second,
            (sequence.first_token - called) / self._second,
            (sequence.finished - called) / self._second,
            sequence.request.output_tokens,
            sequence.answer_hit,
        )

    def rejected(self, request: Request, replica: int, arrival: int, reason: str) -> None:
        """Note a request that the engine cannot serve."""
        self.refused[request.row] = reason

    def outcome(self, row: int) -> Outcome:
        """What the client of a request saw; a CapacityError if it was refused."""
        if row in self.refused:
            raise CapacityError(f"request {row}: {self.refused[row]}, yet the engine has served it")
        return self.requests[row]
