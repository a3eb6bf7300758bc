"""Qwen-Bailian usage traces (JSONL): seconds, 16-token hash blocks, chats linked by their parents.

Turns keep their recorded times (open loop); ``session`` is the ``chat_id`` of the chat's first turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kvsim.core import Request
from kvsim.workload.clock import Clock
from kvsim.workload.fields import Record, hash_ids, json_object, tokens, wrong
from kvsim.workload.head import Head
from kvsim.workload.ledger import Ledger
from kvsim.workload.recent import Recent
from kvsim.workload.rows import requests_of_lines
from kvsim.workload.source import Source

ROOT = -1


class Bailian:
    """Reads Qwen-Bailian traces; ``hash_block``: tokens of a hash id."""

    summary: ClassVar[str] = "Qwen-Bailian JSONL: chat_id, parent_chat_id, timestamp (s), hash_ids"
    timed: ClassVar[bool] = True

    def __init__(self, source: Source, ledger: Ledger, *, hash_block: int = 16) -> None:
        self._source = source
        self._ledger = ledger
        self._hash_block = hash_block
        self._clock = Clock(ledger, 1)
        self._first_turns: Recent[str] = Recent()

    @staticmethod
    def score(head: Head) -> int:
        return 10 * head.counts("chat_id", "parent_chat_id")

    def __iter__(self) -> Iterator[Request]:
        return requests_of_lines(self._source, self._ledger, self._request)

    def _request(self, row: int, line: bytes) -> Request:
        record = json_object(line)
        prompt = tokens(record, "input_length")
        output = tokens(record, "output_length")
        ids = hash_ids(record, "hash_ids", prompt, self._hash_block)
        block = self._hash_block if ids else 0
        chat = self._chat(record)
        session = self._session(chat, record)
        arrival = self._clock.read(record, "timestamp")
        return Request(row, arrival, prompt, output, ids, block, session, None, chat)

    def _chat(self, record: Record) -> str:
        chat = record.get("chat_id")
        if type(chat) is not int or self._first_turns.get(str(chat)) is not None:
            raise wrong(record, "chat_id", "a whole number that no earlier row has")
        return str(chat)

    def _session(self, chat: str, record: Record) -> str:
        """The first turn of the chat that this turn continues, as far as the trace shows it."""
        parent = record.get("parent_chat_id")
        if type(parent) is not int:
            raise wrong(record, "parent_chat_id", "the chat_id of the turn before, or -1")
        first = chat if parent == ROOT else self._first_turns.get(str(parent))
        if first is None:
            self._ledger.note("turns whose parent_chat_id is not in the trace begin a session")
        session = first or chat
        self._first_turns.put(chat, session)
        return session
