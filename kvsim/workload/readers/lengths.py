"""Length CSVs of Vidur, Sarathi and etalon: prompt and answer lengths without any times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kvsim.core import Request
from kvsim.workload.head import Head
from kvsim.workload.ledger import Ledger
from kvsim.workload.rows import Cells, Table, whole
from kvsim.workload.source import Source

COLUMNS = ("num_prefill_tokens", "num_decode_tokens")


class Lengths:
    """Reads ``num_prefill_tokens,num_decode_tokens,...`` CSVs."""

    summary: ClassVar[str] = (
        "Vidur/etalon length CSV: num_prefill_tokens, num_decode_tokens; no times"
    )
    timed: ClassVar[bool] = False

    def __init__(self, source: Source, ledger: Ledger) -> None:
        self._source = source
        self._ledger = ledger

    @staticmethod
    def score(head: Head) -> int:
        return 2 * head.counts(*COLUMNS)

    def __iter__(self) -> Iterator[Request]:
        return Table(self._source, self._ledger, COLUMNS).requests(_request)


def _request(row: int, cells: Cells) -> Request:
    return Request(row, 0.0, whole(cells[0], COLUMNS[0]), whole(cells[1], COLUMNS[1]))
