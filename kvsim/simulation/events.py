"""The two kinds of event that a replay needs, ordered within one instant: arrivals, then engines.

SimPy's own timeouts share one priority, and waking, interrupting or composing them costs several
times as much as an event of our own.
"""

from __future__ import annotations

from collections.abc import Callable

from simpy import Environment, Event
from simpy.events import EventPriority

ARRIVAL = EventPriority(1)
ENGINE = EventPriority(2)
"""An engine that is ready at the instant of an arrival sees it."""


class Clock(Environment):
    """SimPy's environment with an integer clock: picoseconds."""

    @property
    def now(self) -> int:
        """Picoseconds since the start of the trace."""
        return self._now  # type: ignore[return-value]  # it starts at 0 and only integers are added


class Call(Event):
    """Calls a function once, at a given instant (picoseconds), unless it is dropped before."""

    def __init__(
        self, env: Clock, at: int, priority: EventPriority, callback: Callable[[Event], None]
    ) -> None:
        self.env = env
        self.callbacks = [callback]
        self._ok = True
        self._value = None
        self._defused = False
        env.schedule(self, priority, at - env.now)

    def drop(self) -> None:
        """Let the event pass without effect; taking it out of the heap would cost more."""
        self.callbacks = []
