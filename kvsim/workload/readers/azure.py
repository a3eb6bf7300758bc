"""Azure LLM inference traces (2023, 2024; 2025 with images): CSV of wall-clock times and lengths.

``TIMESTAMP`` is ``YYYY-MM-DD HH:MM:SS`` with up to 7 fractional digits (ticks of 100 ns), in 2024
followed by an offset (``+00:00``); the first row is time 0. No identity of prefixes or sessions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from kvsim.core import Request
from kvsim.errors import shown
from kvsim.workload.clock import Clock
from kvsim.workload.head import Head
from kvsim.workload.ledger import BadRow, Ledger
from kvsim.workload.rows import Cells, Table, whole
from kvsim.workload.source import Source

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
TICKS = 10_000_000
"""Ticks in a second."""
_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,7})\d*)?(Z|[+-]\d\d:\d\d)?", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)


class Azure:
    """Reads the Azure LLM inference traces of all years."""

    summary: ClassVar[str] = "Azure LLM inference CSV: TIMESTAMP, ContextTokens, GeneratedTokens"
    timed: ClassVar[bool] = True

    def __init__(self, source: Source, ledger: Ledger) -> None:
        self._source = source
        self._ledger = ledger
        self._clock = Clock(ledger, TICKS, from_first=True)
        self._second = ("", 0)

    @staticmethod
    def score(head: Head) -> int:
        return head.counts("timestamp", "contexttokens", "generatedtokens")

    def __iter__(self) -> Iterator[Request]:
        return Table(self._source, self._ledger, COLUMNS).requests(self._request)

    def _request(self, row: int, cells: Cells) -> Request:
        prompt = whole(cells[1], "ContextTokens")
        output = whole(cells[2], "GeneratedTokens")
        arrival = self._clock.seconds(self._ticks(cells[0]), "TIMESTAMP")
        return Request(row, arrival, prompt, output)

    def _ticks(self, stamp: str) -> int:
        """100-ns ticks since 1970; many rows share a second, which is parsed once."""
        found = _STAMP.fullmatch(stamp.strip())
        if found is None:
            raise _bad_stamp(stamp)
        second, fraction, offset = found.groups()
        if self._second[0] != (key := f"{second}{offset or 'Z'}"):
            self._second = (key, _unix_seconds(key, stamp))
        return self._second[1] * TICKS + int((fraction or "0").ljust(7, "0"))


def _unix_seconds(text: str, stamp: str) -> int:
    try:
        return (datetime.fromisoformat(text) - _EPOCH) // _SECOND
    except ValueError:
        raise _bad_stamp(stamp) from None


def _bad_stamp(stamp: str) -> BadRow:
    accepted = "YYYY-MM-DD HH:MM:SS.fffffff, with or without an offset like +00:00"
    return BadRow(f"field 'TIMESTAMP' is {shown(stamp)}; accepted: {accepted}")
