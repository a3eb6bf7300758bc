"""ShareGPT conversations: a JSON array (or JSONL, as SGLang takes it) of texts, without times.

As the benchmarks of vLLM and SGLang do, the first turn is the prompt and the second its answer;
conversations of fewer turns are left out. Tokens are estimated from the length of the text.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import ClassVar

from kvsim.core import Request
from kvsim.errors import TraceError, shown
from kvsim.workload.fields import Record, estimated_tokens, json_object, wrong
from kvsim.workload.head import Head
from kvsim.workload.ledger import BadRow, Ledger
from kvsim.workload.readers.mooncake import ESTIMATED
from kvsim.workload.rows import requests_of_lines
from kvsim.workload.source import Source, readable

TURNS = 'a list of turns like {"from": ..., "value": text}'
_CHUNK = 1 << 20
_LONGEST = 1 << 28
"""Characters after which an element without an end is no longer believed to be one."""


class ShareGpt:
    """Reads ``[{"id": ..., "conversations": [{"from": ..., "value": ...}, ...]}, ...]``."""

    summary: ClassVar[str] = "ShareGPT JSON: conversations of texts; no times"
    timed: ClassVar[bool] = False

    def __init__(self, source: Source, ledger: Ledger) -> None:
        self._source = source
        self._ledger = ledger

    @staticmethod
    def score(head: Head) -> int:
        return 10 * head.counts("conversations", "conversation")

    def __iter__(self) -> Iterator[Request]:
        if self._source.head(64).lstrip().startswith(b"["):
            return self._array()
        return requests_of_lines(self._source, self._ledger, self._line)

    def _array(self) -> Iterator[Request]:
        row = 0
        for place, element in enumerate(elements(self._source)):
            try:
                request = self._request(row, element)
            except BadRow as why:
                self._ledger.bad_row(f"{self._source.name}:[{place}]", why)
                continue
            if request is not None:
                row += 1
                yield request

    def _line(self, row: int, line: bytes) -> Request | None:
        return self._request(row, json_object(line))

    def _request(self, row: int, element: object) -> Request | None:
        if type(element) is not dict:
            raise BadRow(f"the element is {shown(element)}; accepted: an object")
        field = "conversation" if "conversation" in element else "conversations"
        turns = element.get(field)
        if type(turns) is not list:
            raise wrong(element, field, TURNS)
        if len(turns) < 2:
            self._ledger.note("conversations of fewer than 2 turns left out")
            return None
        prompt, answer = (_tokens(turns[i], f"{field}[{i}]") for i in range(2))
        if not prompt or not answer:
            self._ledger.note("conversations with an empty prompt or answer left out")
            return None
        self._ledger.note(ESTIMATED)
        return Request(row, 0.0, prompt, answer)


def _tokens(turn: object, place: str) -> int:
    record: Record = turn if type(turn) is dict else {}
    text = record.get("value", record.get("content"))
    if type(text) is not str:
        raise BadRow(f"field {place!r} is {shown(turn)}; accepted: an object with a text 'value'")
    return estimated_tokens(text)


def elements(source: Source) -> Iterator[object]:
    """The elements of a JSON array, one at a time: the array may be larger than the memory."""
    decoder = json.JSONDecoder()
    pieces = _pieces(source)
    text = next(pieces, "").lstrip().removeprefix("[")
    while True:
        text = text.lstrip(" \t\r\n,")
        if text.startswith("]"):
            return
        try:
            element, end = decoder.raw_decode(text)
        except (ValueError, RecursionError) as why:
            more = next(pieces, "")
            if not more or len(text) > _LONGEST:
                raise TraceError(f"{source.name}: not a JSON array, {_reason(why)}") from None
            text += more
            continue
        yield element
        text = text[end:]


def _pieces(source: Source) -> Iterator[str]:
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    with readable(source.name), source.open() as file:
        while piece := file.read(_CHUNK):
            yield decode(piece).removeprefix("\ufeff")


def _reason(why: Exception) -> str:
    text = str(why).partition(":")[0].lower()
    return f"{text} (is it cut short?); accepted: a whole array of conversations"
