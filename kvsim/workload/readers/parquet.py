"""Parquet written by ``kvsim trace convert``: the fields of kvsim JSONL as columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from kvsim.core import Request
from kvsim.errors import TraceError
from kvsim.workload.head import Head
from kvsim.workload.ledger import BadRow, Ledger
from kvsim.workload.readers.kvsim_jsonl import KvsimJsonl
from kvsim.workload.source import Source

NEEDED = ("arrival", "prompt_tokens", "output_tokens")
_BATCH = 4096


class Parquet:
    """Reads kvsim's Parquet, one batch of rows at a time."""

    summary: ClassVar[str] = "kvsim Parquet: the fields of kvsim JSONL as columns"
    timed: ClassVar[bool] = True

    def __init__(self, source: Source, ledger: Ledger) -> None:
        self._source = source
        self._ledger = ledger
        self._rows = KvsimJsonl(source, ledger)

    @staticmethod
    def score(head: Head) -> int:
        return 100 if head.is_parquet else 0

    def __iter__(self) -> Iterator[Request]:
        row = 0
        for place, record in enumerate(self._records()):
            try:
                request = self._rows.request(row, record)
            except BadRow as why:
                self._ledger.bad_row(f"{self._source.name}:row {place}", why)
                continue
            row += 1
            self._ledger.line = place
            yield request

    def _records(self) -> Iterator[dict[str, object]]:
        import pyarrow
        import pyarrow.parquet

        try:
            with pyarrow.parquet.ParquetFile(self._source.path.absolute()) as file:
                missing = [name for name in NEEDED if name not in file.schema_arrow.names]
                if missing:
                    raise TraceError(
                        f"{self._source.name}: column {missing[0]!r} is missing; accepted: Parquet "
                        "with the fields of kvsim JSONL as columns"
                    )
                for batch in file.iter_batches(_BATCH):
                    for record in batch.to_pylist():
                        yield {name: value for name, value in record.items() if value is not None}
        except (pyarrow.ArrowException, OSError) as why:
            reason = str(why).partition("\n")[0]
            raise TraceError(f"{self._source.name}: not readable as Parquet, {reason}") from None
