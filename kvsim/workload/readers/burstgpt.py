"""BurstGPT CSV, all parts: columns by name, because part 3 inserts two of them.

``Timestamp`` in s. A row with 0 response tokens is a failed request, and some rows have 0 request
tokens; both are left out and counted. Rows of a ``Session ID`` keep it and their recorded times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kvsim.core import Request
from kvsim.workload.clock import Clock
from kvsim.workload.head import Head
from kvsim.workload.ledger import Ledger
from kvsim.workload.rows import Cells, Table, moment, whole
from kvsim.workload.source import Source

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")
NO_ANSWER = "failed requests (0 response tokens) left out"
NO_PROMPT = "rows with 0 request tokens left out"


class BurstGpt:
    """Reads BurstGPT_1, _2, _3 and their variants without failures."""

    summary: ClassVar[str] = "BurstGPT CSV: Timestamp (s), Model, Request tokens, Response tokens"
    timed: ClassVar[bool] = True

    def __init__(self, source: Source, ledger: Ledger) -> None:
        self._source = source
        self._ledger = ledger
        self._clock = Clock(ledger, 1)

    @staticmethod
    def score(head: Head) -> int:
        return head.counts("timestamp", "request tokens", "response tokens", "log type")

    def __iter__(self) -> Iterator[Request]:
        sessions = ("Session ID",) if "session id" in self._header() else ()
        columns = (*COLUMNS, *sessions)
        return Table(self._source, self._ledger, columns).requests(self._request)

    def _header(self) -> str:
        return next(self._source.lines()).decode("utf-8", "replace").lower()

    def _request(self, row: int, cells: Cells) -> Request | None:
        prompt = whole(cells[1], "Request tokens", least=0)
        output = whole(cells[2], "Response tokens", least=0)
        arrival = self._clock.seconds(moment(cells[0], "Timestamp"), "Timestamp")
        if output == 0 or prompt == 0:
            self._ledger.note(NO_ANSWER if output == 0 else NO_PROMPT)
            return None
        session = cells[3].strip() or None if len(cells) > 3 else None
        return Request(row, arrival, prompt, output, session=session)
