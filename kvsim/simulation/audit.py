"""Asserts while a simulation runs, and when it ends, what must hold in every one.

The numbers are those of ``docs/INVARIANTS.md``. Memory and schedulers keep books of their own, which
their ``check`` balances; here is what can only be seen from outside.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from kvsim.core import Leap, Request, Sequence, picoseconds
from kvsim.protocols import Allocator, Observer
from kvsim.simulation.replica import Replica


class Audit:
    """An observer that checks what it is told and passes it on."""

    def __init__(self, replicas: list[Replica], observer: Observer) -> None:
        self._replicas = replicas
        self._observer = observer
        self._submitted: set[int] = set()
        self._over: set[int] = set()
        self._computed = 0
        """Tokens of all iterations."""
        self._needed = 0
        """Tokens that the finished requests had to have computed."""
        self._ends = [0] * len(replicas)
        self._idle: list[list[int]] = [[0] for _ in replicas]
        """When each replica fell idle and woke, in turn; an odd number while it is idle."""

    def watch(self, requests: Iterable[Request]) -> Iterator[Request]:
        """The requests, counted as they are read."""
        for request in requests:
            assert request.row not in self._submitted, f"row {request.row} comes twice"
            self._submitted.add(request.row)
            yield request

    def leap(self, leap: Leap, allocator: Allocator) -> None:
        """Time goes on without a hole, and only on an idle engine does it jump."""
        replica, start, end, steps, shape, *_ = leap
        idle = self._idle[replica]
        if len(idle) % 2:
            idle.append(start)
        assert steps > 0
        assert max(idle[-1], self._ends[replica]) == start < end, "[7] the clock is monotone"
        self._ends[replica] = end
        self._computed += steps * (shape.decodes + shape.prefill_tokens)
        self._observer.leap(leap, allocator)

    def gap(self, picoseconds: int) -> None:
        """A wait for a token is positive."""
        assert picoseconds > 0
        self._observer.gap(picoseconds)

    def finished(self, sequence: Sequence, replica: int) -> None:
        """The request went through all its stages in order and got all its tokens."""
        request = sequence.request
        self._end(request, sequence.arrival)
        arrival, scheduled = sequence.arrival, sequence.scheduled
        first, finished = sequence.first_token, sequence.finished
        assert scheduled is not None
        assert first is not None
        assert finished is not None
        assert arrival <= scheduled < first <= finished, "[8] cause comes before effect"
        assert finished >= self._ends[replica]
        assert sequence.generated == request.output_tokens, "[2] every token is generated"
        needed = request.prompt_tokens + request.output_tokens - 1
        assert sequence.num_computed == needed, "[2] all KV but the last token's is computed"
        assert 0 <= sequence.cached_tokens < request.prompt_tokens
        self._needed += needed - sequence.cached_tokens + sequence.recomputed_tokens
        self._needed += (request.width - 1) * (request.output_tokens - 1)
        if self._replicas[replica].immediate:
            idled = self._idled(replica, arrival, scheduled)
            assert not idled, "[9] an engine idles, a request waits"
        self._observer.finished(sequence, replica)

    def _idled(self, replica: int, start: int, end: int) -> bool:
        """Whether the replica was idle at some time between two instants."""
        idle = self._idle[replica]
        after = bisect_right(idle, start)
        if after % 2:
            return start < end
        return after < len(idle) and idle[after] < end

    def rejected(self, request: Request, replica: int, arrival: int, reason: str) -> None:
        """The request is over without having been served."""
        self._end(request, arrival)
        assert reason
        self._observer.rejected(request, replica, arrival, reason)

    def _end(self, request: Request, arrival: int) -> None:
        assert request.row in self._submitted
        assert request.row not in self._over, "[1] a request ends once"
        self._over.add(request.row)
        if request.arrival is not None:
            assert picoseconds(request.arrival) <= arrival, "[8] nobody arrives early"

    def idle(self, replica: int, allocator: Allocator) -> None:
        """Who has nothing to do holds nothing but what is loaded, and nobody waits for it."""
        scheduler = self._replicas[replica].scheduler
        loading = getattr(scheduler, "loading_count", 0)  # holds memory that others wait for
        assert loading or not scheduler.waiting_count, "[9] an engine idles, a request waits"
        assert not scheduler.running_count
        assert loading or not allocator.held_slots, "[6] an idle engine holds nothing"
        idle = self._idle[replica]
        if len(idle) % 2 == 0:  # else it is idle already: it was asked, but only began to load
            idle.append(self._ends[replica])
        self._observer.idle(replica, allocator)

    def close(self) -> None:
        """The sums at the end of the run."""
        assert self._over == self._submitted, "[1] every request is served or rejected"
        for replica in self._replicas:
            assert not replica.allocator.held_slots, "[6] nothing is held in the end"
            replica.check()
        pads = any(getattr(replica.scheduler, "pads", False) for replica in self._replicas)
        exact = self._computed == self._needed
        assert exact or (pads and self._computed > self._needed), "[2] tokens are conserved"
