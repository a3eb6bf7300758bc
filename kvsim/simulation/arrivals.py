"""When requests arrive: at their own time, or some think time after the previous turn has ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from simpy import Event

from kvsim.core import Request, Sequence, picoseconds
from kvsim.simulation.events import ARRIVAL, Call, Clock

REMEMBERED = 65_536
"""Sessions without a known next turn whose last one's end is remembered, the latest ones."""


class Arrivals:
    """Hands every request to ``deliver`` at its instant, reading the trace as time goes on."""

    def __init__(
        self, env: Clock, requests: Iterable[Request], deliver: Callable[[Sequence], None]
    ) -> None:
        self._env = env
        self._requests = iter(requests)
        self._deliver = deliver
        self._turns: dict[str, deque[Request]] = {}  # later turns of sessions, in order
        self._going: set[str] = set()  # sessions with a turn that is served or will arrive
        self._idle: dict[str, int] = {}  # when the last known turn of other sessions ended
        self._read()

    @property
    def turns_left(self) -> int:
        """Turns whose session has not come to them."""
        return sum(map(len, self._turns.values()))

    def _read(self) -> None:
        """Schedule the next request that has a time of its own; file the turns before it."""
        for request in self._requests:
            if request.arrival is None:
                self._file(request)
                continue
            at = max(picoseconds(request.arrival), self._env.now)
            self._request = request
            if request.session is not None:
                self._going.add(request.session)
                self._idle.pop(request.session, None)
            Call(self._env, at, ARRIVAL, self._arrive)
            return

    def _arrive(self, _: Event) -> None:
        request = self._request
        self._open(request)
        self._read()

    def _open(self, request: Request) -> None:
        self._deliver(Sequence(request, self._env.now))

    def _file(self, request: Request) -> None:
        assert request.session is not None
        turns = self._turns.setdefault(request.session, deque())
        turns.append(request)
        if request.session not in self._going:
            self._next_turn(request.session, self._idle.pop(request.session, 0))

    def ended(self, sequence: Sequence) -> None:
        """A request is over, served or not: its session thinks, then asks again."""
        session = sequence.request.session
        if session is None:
            return
        if self._turns.get(session):
            self._next_turn(session, self._env.now)
        else:
            self._going.discard(session)
            self._idle[session] = self._env.now
            if len(self._idle) > REMEMBERED:
                del self._idle[next(iter(self._idle))]

    def _next_turn(self, session: str, ended: int) -> None:
        request = self._turns[session].popleft()
        self._going.add(session)
        if not self._turns[session]:
            del self._turns[session]
        at = max(ended + picoseconds(request.think_time or 0.0), self._env.now)
        Call(self._env, at, ARRIVAL, lambda _: self._open(request))
