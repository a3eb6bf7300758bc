"""kvsim's own JSONL: one request an object, the fields of :class:`kvsim.core.Request`.

| field | | meaning |
| --- | --- | --- |
| ``arrival`` | s | from the start of the trace; absent in a later turn of a session |
| ``prompt_tokens``, ``output_tokens`` | tokens | at least 1 |
| ``hash_ids`` | list | names of the prompt's blocks from its start; may cover a part of it only |
| ``hash_block`` | tokens | that an id stands for; 512 if absent |
| ``session`` | text | turns of one session follow one another in the file |
| ``think_time`` | s | from the end of the session's previous turn to this one |
| ``id`` | text | the request's own name; no two alike |
| ``n`` | | answers sampled in parallel, each of ``output_tokens``; 1 if absent |
| ``beam_width`` | | beams of a beam search; 1, none, if absent; at least ``n`` |
| ``priority`` | | lower values are more important; 0 if absent |
| ``tenant``, ``user`` | text | whose request it is, and who of the tenant asks |

``prompt``, ``output``, ``blocks`` and ``block_tokens`` are accepted as short names.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import ClassVar

from kvsim.core import Request
from kvsim.workload.clock import Clock
from kvsim.workload.fields import (
    MOST_PRIORITY,
    MOST_SEQUENCES,
    SECONDS,
    Record,
    count,
    hash_ids,
    json_object,
    name,
    seconds,
    tokens,
    wrong,
)
from kvsim.workload.head import Head
from kvsim.workload.ledger import Ledger
from kvsim.workload.recent import Recent
from kvsim.workload.rows import requests_of_lines
from kvsim.workload.source import Source

SHORT = {
    "prompt": "prompt_tokens",
    "output": "output_tokens",
    "blocks": "hash_ids",
    "block_tokens": "hash_block",
}
SERVICE = frozenset({"n", "beam_width", "priority", "tenant", "user"})
"""How a request is to be served and for whom; few traces say."""
KNOWN = frozenset({*Request._fields, *SHORT})


class KvsimJsonl:
    """Reads kvsim's own JSONL; ``hash_block``: tokens of a hash id in rows that do not say."""

    summary: ClassVar[str] = "kvsim JSONL: arrival (s), prompt_tokens, output_tokens, hash_ids, ..."
    timed: ClassVar[bool] = True

    def __init__(self, source: Source, ledger: Ledger, *, hash_block: int = 512) -> None:
        self._source = source
        self._ledger = ledger
        self._hash_block = hash_block
        self._clock = Clock(ledger, 1)
        self._ids: Recent[bool] = Recent()
        self._sessions: Recent[bool] = Recent()

    @staticmethod
    def score(head: Head) -> int:
        own = ("arrival", "prompt_tokens", "hash_block", "think_time", *SHORT)
        return head.counts("output_tokens", *own)

    def __iter__(self) -> Iterator[Request]:
        return requests_of_lines(self._source, self._ledger, self._line)

    def _line(self, row: int, line: bytes) -> Request:
        return self.request(row, json_object(line))

    def request(self, row: int, record: Record) -> Request:
        """The request that a record of these fields describes."""
        if not record.keys() <= KNOWN:
            self._note_unknown(record)
        prompt_field = "prompt" if "prompt" in record else "prompt_tokens"
        prompt = tokens(record, prompt_field)
        output = tokens(record, "output" if "output" in record else "output_tokens")
        ids, block = self._blocks(record, prompt)
        session = name(record, "session") if "session" in record else None
        arrival, think_time = self._times(record, session)
        own_name = self._own_name(record) if "id" in record else None
        request = Request(row, arrival, prompt, output, ids, block, session, think_time, own_name)
        return request if SERVICE.isdisjoint(record) else served_as(request, record)

    def _note_unknown(self, record: Record) -> None:
        for field in sorted(record.keys() - KNOWN):
            self._ledger.note(f"field {field!r} is not known and ignored")

    def _blocks(self, record: Record, prompt: int) -> tuple[array[int] | None, int]:
        field = "blocks" if "blocks" in record else "hash_ids"
        given = record.get(field)
        if given is None or given == []:
            return None, 0
        size = "block_tokens" if "block_tokens" in record else "hash_block"
        block = tokens(record, size) if record.get(size) is not None else self._hash_block
        most = -(-prompt // block)
        if field == "blocks" and type(given) is list and len(given) > most:
            # Workloads of recorded runs cut prompts to what fits, and not always their ids.
            self._ledger.note("ids in 'blocks' past the end of the prompt are ignored")
            record = {**record, field: given[:most]}
        return hash_ids(record, field, prompt, block), block

    def _times(self, record: Record, session: str | None) -> tuple[float | None, float | None]:
        think_time = None
        if record.get("think_time") is not None:
            think_time = seconds(record, "think_time")
        if record.get("arrival") is not None:
            arrival: float | None = self._clock.read(record, "arrival")
        elif think_time is None or session is None or not self._sessions.get(session):
            raise wrong(record, "arrival", f"{SECONDS}; or a think_time in a session begun before")
        else:
            arrival = None
        if session is not None:
            self._sessions.put(session, True)
        return arrival, think_time

    def _own_name(self, record: Record) -> str | None:
        own_name = name(record, "id")
        if own_name is not None:
            if self._ids.get(own_name):
                raise wrong(record, "id", "an id that no earlier row has")
            self._ids.put(own_name, True)
        return own_name


def served_as(request: Request, record: Record) -> Request:
    """The request with what its record says about samples, beams, priority and whose it is."""
    width = count(record, "beam_width", 1, MOST_SEQUENCES) if "beam_width" in record else 1
    samples = count(record, "n", 1, MOST_SEQUENCES) if "n" in record else 1
    if 1 < width < samples:
        raise wrong(record, "n", f"at most beam_width, which is {width}")
    limit = MOST_PRIORITY
    priority = count(record, "priority", -limit, limit) if "priority" in record else 0
    tenant, user = name(record, "tenant"), name(record, "user")
    return request._replace(
        n=samples, beam_width=width, priority=priority, tenant=tenant, user=user
    )
