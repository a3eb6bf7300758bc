"""Agentic coding traces (kv-cache-tester, "Weka"): one JSON file a session, or a folder of them.

Turns are serial: one starts ``think_time`` after the answer to the one before (closed loop), whatever
``t`` says. The turns of a sub-agent take their place in the order of the file. ``hash_ids`` name full
blocks of 64 tokens and are local to a file unless its ``hash_id_scope`` is ``global``. Pauses of hours
(overnight) are capped, at 60 s by default, as the source's own replay tool does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import orjson

from kvsim.core import Request
from kvsim.errors import TraceError, shown
from kvsim.workload.fields import (
    Record,
    hash_ids,
    seconds,
    tokens,
    wrong,
)
from kvsim.workload.head import Head
from kvsim.workload.ledger import BadRow, Ledger
from kvsim.workload.source import Source, readable

Entry = tuple[str, object]
"""What should be a turn, and its place in the file, such as ``requests[3].requests[0]``."""


class Agentic:
    """Reads agentic sessions; ``think_time_cap``: longest pause between turns that is kept, s."""

    summary: ClassVar[str] = "agentic coding JSON (file or folder): closed-loop sessions, hash_ids"
    timed: ClassVar[bool] = True

    def __init__(self, source: Source, ledger: Ledger, *, think_time_cap: float = 60.0) -> None:
        self._source = source
        self._ledger = ledger
        self._cap = think_time_cap
        self._sessions: set[str] = set()
        self._next_id = 0

    @staticmethod
    def score(head: Head) -> int:
        marks = head.counts(
            "requests", "hash_id_scope", "tool_tokens", "system_tokens", "block_size"
        )
        return 5 * marks if "requests" in head.keys and head.text.startswith("{") else 0

    def __iter__(self) -> Iterator[Request]:
        row = 0
        for member in self._source.members:
            for request in self._session(member):
                yield request._replace(row=row)
                row += 1

    def _session(self, file: Source) -> Iterator[Request]:
        document = _document(file)
        session = self._name(file, document)
        try:
            block = tokens(document, "block_size") if "block_size" in document else 64
            entries = list(_turns(document, ""))
        except BadRow as why:
            raise TraceError(f"{file.name}: {why}") from None
        except RecursionError:
            raise TraceError(f"{file.name}: sub-agents are nested without end") from None
        first_id = 0 if document.get("hash_id_scope") == "global" else self._next_id
        previous: Record | None = None
        for place, entry in entries:
            try:
                record = _object(entry)
                request = self._turn(record, previous, block)
            except BadRow as why:
                self._ledger.bad_row(f"{file.name}:{place}", why)
                continue
            previous = record
            yield self._placed(request, session, first_id)

    def _name(self, file: Source, document: Record) -> str:
        """The session's id, made unique among the files of a folder."""
        own = document.get("id")
        session = own if type(own) is str and own else file.path.name
        if session in self._sessions:
            session = f"{session}#{len(self._sessions)}"
        self._sessions.add(session)
        return session

    def _placed(self, request: Request, session: str, first_id: int) -> Request:
        """The turn with its session, its ids moved past those of the files before."""
        ids = request.hash_ids
        if ids and first_id:
            ids = [first_id + own for own in ids]
        if ids:
            self._next_id = max(self._next_id, max(ids) + 1)
        return request._replace(session=session, hash_ids=ids)

    def _turn(self, record: Record, previous: Record | None, block: int) -> Request:
        prompt = tokens(record, "in")
        output = self._output(record)
        ids = hash_ids(record, "hash_ids", prompt, block)
        size = block if ids else 0
        if previous is None:
            return Request(0, 0.0, prompt, output, ids, size)
        pause = self._think_time(record, previous)
        return Request(0, None, prompt, output, ids, size, None, pause)

    def _output(self, record: Record) -> int:
        if record.get("out") == 0 and type(record["out"]) is int:
            self._ledger.note("answers of 0 tokens count as 1 token")
            return 1
        return tokens(record, "out")

    def _think_time(self, record: Record, previous: Record) -> float:
        """The recorded pause, else the time between the turns less the previous answer's."""
        if record.get("think_time") is not None:
            pause = seconds(record, "think_time")
        else:
            busy = seconds(previous, "api_time") if "api_time" in previous else 0.0
            pause = max(0.0, seconds(record, "t") - seconds(previous, "t") - busy)
            self._ledger.note("think times that are missing, taken from the times of the turns")
        if pause > self._cap:
            self._ledger.note(f"think times longer than {self._cap:g} s, capped")
        return min(pause, self._cap)


def _document(file: Source) -> Record:
    """A whole file: a session is one JSON object."""
    with readable(file.name), file.open() as opened:
        data = opened.read()
    try:
        document = orjson.loads(data.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as why:
        reason = str(why).partition(":")[0]
        raise TraceError(f"{file.name}: not JSON, {reason}; accepted: one whole session") from None
    if type(document) is not dict:
        raise TraceError(f"{file.name}: is {shown(document)}; accepted: an object with 'requests'")
    return document


def _turns(document: Record, place: str) -> Iterator[Entry]:
    """The turns of a session in order, those of sub-agents at their place."""
    requests = document.get("requests")
    if type(requests) is not list:
        raise wrong(document, "requests", "a list of turns")
    return _flat(requests, f"{place}requests")


def _flat(requests: list[object], place: str) -> Iterator[Entry]:
    for index, entry in enumerate(requests):
        here = f"{place}[{index}]"
        if type(entry) is dict and entry.get("type") == "subagent":
            yield from _turns(entry, f"{here}.")
        else:
            yield here, entry


def _object(entry: object) -> Record:
    if type(entry) is not dict:
        raise BadRow(f"the turn is {shown(entry)}; accepted: an object")
    return entry
