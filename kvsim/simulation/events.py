"""The events that a replay needs, in their order within one instant: ends, arrivals, starts.

Iterations end, replica by replica; then requests arrive, those too whose session was answered just
now; then engines start what they decide. So what happens at an instant does not depend on when its
events were planned, and leaps, which plan them earlier, change nothing.

SimPy's own timeouts share one priority, and waking, interrupting or composing them costs several
times as much as an event of our own.
"""

from __future__ import annotations

from collections.abc import Callable

from simpy import Environment, Event
from simpy.events import EventPriority

ARRIVAL = EventPriority(0)


def end_of(replica: int) -> EventPriority:
    """Before every arrival of the instant, replicas in order of their index."""
    return EventPriority(replica - (1 << 62))


def start_of(replica: int) -> EventPriority:
    """After every arrival of the instant, replicas in order of their index."""
    return EventPriority(replica + 1)


class Clock(Environment):
    """SimPy's environment with an integer clock: picoseconds."""

    @property
    def now(self) -> int:
        """Picoseconds since the start of the trace."""
        return self._now  # type: ignore[return-value]  # it starts at 0 and only integers are added

    @property
    def has_more_now(self) -> bool:
        """Whether other events share this instant."""
        return self.peek() == self._now


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
