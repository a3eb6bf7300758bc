"""Mooncake JSONL (FAST'25 release) and what other tools have added to it.

``timestamp`` in ms from the start, ``input_length`` and ``output_length`` in tokens, ``hash_ids`` of
512-token blocks, the last of which may be partial. Added by others: ``block_size`` in a row, the
aliases ``created_time``, ``input_tokens`` and ``output_tokens``, ``text_input`` for a prompt given as
text (AIPerf), and sessions: rows of one ``session_id`` are turns, of which a later one may have a
``delay`` (or ``delay_ms``), ms after the end of the one before, instead of a timestamp (Dynamo).
``tenant`` and ``user`` say whose a request is, as in kvsim's own traces; no published trace tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kvsim.core import Request
from kvsim.workload.clock import Clock
from kvsim.workload.fields import (
    MAX_SECONDS,
    Record,
    estimated_tokens,
    hash_ids,
    json_object,
    name,
    number,
    text,
    tokens,
)
from kvsim.workload.head import Head
from kvsim.workload.ledger import Ledger
from kvsim.workload.recent import Recent
from kvsim.workload.rows import requests_of_lines
from kvsim.workload.source import Source

FIELDS = ("timestamp", "created_time", "input_length", "input_tokens", "output_length",
          "output_tokens", "hash_ids", "delay", "delay_ms", "text_input")  # fmt: skip
ADDED = frozenset({"session_id", "delay", "delay_ms", "tenant", "user"})
"""Fields that few rows have."""
MILLISECONDS = f"ms from 0 to {MAX_SECONDS * 1000:,.0f}"
ESTIMATED = "prompts given as text; their tokens are estimated from their length"
UNCOVERED = "hash_ids cover only a part of the prompt; the rest counts as unlike any other"


class Mooncake:
    """Reads Mooncake traces; ``hash_block``: tokens of a hash id in rows that do not say."""

    summary: ClassVar[str] = "Mooncake JSONL: timestamp (ms), input_length, output_length, hash_ids"
    timed: ClassVar[bool] = True
    per_second: ClassVar[int] = 1000

    def __init__(self, source: Source, ledger: Ledger, *, hash_block: int = 512) -> None:
        self._source = source
        self._ledger = ledger
        self._hash_block = hash_block
        self._clock = Clock(ledger, self.per_second)
        self._sessions: Recent[bool] = Recent()

    @staticmethod
    def score(head: Head) -> int:
        is_likely = head.counts("timestamp", "created_time", "input_length", "hash_ids") > 0
        return head.counts(*FIELDS) if is_likely else 0

    def __iter__(self) -> Iterator[Request]:
        return requests_of_lines(self._source, self._ledger, self._request)

    def _request(self, row: int, line: bytes) -> Request:
        record = json_object(line)
        prompt = self._prompt(record)
        output = tokens(record, _present(record, "output_length", "output_tokens"))
        block = tokens(record, "block_size") if "block_size" in record else self._hash_block
        ids = hash_ids(record, "hash_ids", prompt, block)
        if ids is None:
            block = 0
        elif len(ids) * block + block <= prompt:
            self._ledger.note(UNCOVERED)
        if not ADDED.isdisjoint(record):
            return self._turn(row, record, Request(row, None, prompt, output, ids, block))
        arrival = self._clock.read(record, _present(record, "timestamp", "created_time"))
        return Request(row, arrival, prompt, output, ids, block)

    def _prompt(self, record: Record) -> int:
        if "text_input" in record and "input_length" not in record:
            self._ledger.note(ESTIMATED)
            return estimated_tokens(text(record, "text_input"))
        return tokens(record, _present(record, "input_length", "input_tokens"))

    def _turn(self, row: int, record: Record, request: Request) -> Request:
        """A row of a session: its first turn has a time, a later one a time or a delay."""
        request = request._replace(tenant=name(record, "tenant"), user=name(record, "user"))
        session = name(record, "session_id")
        began = session is not None and self._sessions.get(session) is not None
        delay = _present(record, "delay_ms", "delay")
        if began and (delay in record or "timestamp" not in record):
            pause = (
                number(record, delay, MILLISECONDS, MAX_SECONDS * 1000) if delay in record else 0
            )
            return request._replace(session=session, think_time=pause / 1000)
        arrival = self._clock.read(record, _present(record, "timestamp", "created_time"))
        if session is not None:
            self._sessions.put(session, True)
        return request._replace(arrival=arrival, session=session)


def _present(record: Record, field: str, alias: str) -> str:
    """The name under which a field is given."""
    return alias if field not in record and alias in record else field
