"""vLLM ``bench serve --dataset-name custom`` JSONL: prompts as text, no times.

Without the model's tokenizer the tokens of a prompt are estimated from its length, at the mean of
ShareGPT (``CHARACTERS_PER_TOKEN``). Text in other scripts than Latin has more tokens than that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kvsim.core import Request
from kvsim.workload.fields import estimated_tokens, json_object, text, tokens
from kvsim.workload.head import Head
from kvsim.workload.ledger import Ledger
from kvsim.workload.readers.mooncake import ESTIMATED
from kvsim.workload.rows import requests_of_lines
from kvsim.workload.source import Source


class VllmCustom:
    """Reads ``{"prompt": text, "output_tokens": n}`` lines."""

    summary: ClassVar[str] = "vLLM bench custom JSONL: prompt (text), output_tokens; no times"
    timed: ClassVar[bool] = False

    def __init__(self, source: Source, ledger: Ledger) -> None:
        self._source = source
        self._ledger = ledger

    @staticmethod
    def score(head: Head) -> int:
        return 10 if any(type(row.get("prompt")) is str for row in head.rows) else 0

    def __iter__(self) -> Iterator[Request]:
        return requests_of_lines(self._source, self._ledger, self._request)

    def _request(self, row: int, line: bytes) -> Request:
        record = json_object(line)
        prompt = estimated_tokens(text(record, "prompt"))
        self._ledger.note(ESTIMATED)
        return Request(row, 0.0, prompt, tokens(record, "output_tokens"))
