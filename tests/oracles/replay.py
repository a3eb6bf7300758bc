"""Runs kvsim's own engine on a list of requests and keeps what each request saw."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kvsim.core import Leap, Request, Sequence
from kvsim.protocols import Allocator, CostModel, Scheduler
from kvsim.routing import RoundRobin
from kvsim.simulation.cluster import audited, simulate
from kvsim.simulation.replica import Replica


class Seen(NamedTuple):
    """What a user can observe of one request; picoseconds and tokens."""

    row: int
    scheduled: int | None
    first_token: int | None
    finished: int | None
    cached: int
    preemptions: int


class Log:
    """An observer that remembers everything."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.sequences: list[Sequence] = []
        self.refused: list[tuple[int, str]] = []
        self.iterations = self.leaps = 0
        self.gaps: list[int] = []

    def leap(self, leap: Leap, allocator: Allocator) -> None:
        assert leap.start < leap.end
        assert sum(allocator.usage()) == allocator.total_slots
        self.iterations += leap.steps
        self.leaps += 1

    def gap(self, picoseconds: int) -> None:
        self.gaps.append(picoseconds)

    def finished(self, sequence: Sequence, replica: int) -> None:
        s = sequence
        self.sequences.append(s)
        self.seen.append(
            Seen(
                s.request.row,
                s.scheduled,
                s.first_token,
                s.finished,
                s.cached_tokens,
                s.preemptions,
            )
        )

    def rejected(self, request: Request, replica: int, arrival: int, reason: str) -> None:
        self.refused.append((request.row, reason))

    def idle(self, replica: int, allocator: Allocator) -> None:
        assert not allocator.held_slots


def replay(
    requests: Iterable[Request],
    scheduler: Scheduler,
    allocator: Allocator,
    cost: CostModel,
    *,
    check: bool = False,
    log: Log | None = None,
) -> Log:
    """Serve the requests on one engine."""
    log = log or Log()
    serve = audited if check else simulate
    serve(requests, [Replica(0, scheduler, allocator, cost, check=check)], RoundRobin(), log)
    return log
