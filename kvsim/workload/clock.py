"""From the timestamps of a file to seconds from the start of its trace."""

from __future__ import annotations

from kvsim.errors import shown
from kvsim.workload.fields import MAX_SECONDS, Record, wrong
from kvsim.workload.ledger import BadRow, Ledger

A_DAY = 86_400.0
UNIX_LIMIT = 1e10
"""Latest Unix time that is believed, seconds."""
UNITS = {1: "s", 1_000: "ms", 1_000_000: "µs", 1_000_000_000: "ns", 10_000_000: "ticks of 100 ns"}


class Clock:
    """Converts timestamps of ``per_second`` units a second.

    A first timestamp of more than a day is no offset but the reading of some clock (a Unix time,
    seconds since a midnight); the trace then starts at it. Differences are taken before the division,
    so that a time in nanoseconds since 1970 loses nothing.
    """

    def __init__(self, ledger: Ledger, per_second: int, *, from_first: bool = False) -> None:
        self._ledger = ledger
        self._per_second = per_second
        self._origin: float | None = None
        self._from_first = from_first
        limit = MAX_SECONDS * per_second
        self._accepted = f"{UNITS[per_second]} from 0 to {limit:,.0f}, or a Unix time in that unit"

    def read(self, record: Record, field: str) -> float:
        """Seconds from the start of the trace, of a timestamp in a JSON object."""
        stamp = record.get(field)
        if (type(stamp) is int or type(stamp) is float) and stamp >= 0:
            return self.seconds(stamp, field)
        raise wrong(record, field, self._accepted)

    def seconds(self, stamp: float, field: str) -> float:
        """Seconds from the start of the trace; below 0 for a row earlier than the first."""
        if self._origin is None:
            self._start(stamp, field)
        assert self._origin is not None
        seconds = (stamp - self._origin) / self._per_second
        if -A_DAY <= seconds <= MAX_SECONDS:
            return seconds
        accepted = f"{self._accepted}, not far before the first row's"
        raise BadRow(f"field {field!r} is {shown(stamp)}; accepted: {accepted}")

    def _start(self, first: float, field: str) -> None:
        if not 0 <= first <= UNIX_LIMIT * self._per_second:
            raise BadRow(f"field {field!r} is {shown(first)}; accepted: {self._accepted}")
        shifted = first / self._per_second >= A_DAY
        if shifted and not self._from_first:
            self._ledger.remark(f"times count from the first row's {field}, {first:.15g}")
        self._origin = first if shifted or self._from_first else 0.0
