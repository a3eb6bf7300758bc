"""vLLM bench ``timed_trace`` JSONL: Mooncake's fields, but seconds and blocks of 16 tokens.

The tool's ``--timed-trace-chunk-hash-size`` (default 16) is the block size, its
``--timed-trace-sec-multiplier`` (default 1) makes the timestamps seconds.
"""

from __future__ import annotations

from typing import ClassVar

from kvsim.workload.fields import Record
from kvsim.workload.head import Head
from kvsim.workload.ledger import Ledger
from kvsim.workload.readers.mooncake import Mooncake
from kvsim.workload.source import Source


class TimedTrace(Mooncake):
    """Reads vLLM's timed traces; ``hash_block``: tokens of a hash id."""

    summary: ClassVar[str] = "vLLM bench timed_trace JSONL: Mooncake's fields with timestamp in s"
    per_second: ClassVar[int] = 1

    def __init__(self, source: Source, ledger: Ledger, *, hash_block: int = 16) -> None:
        super().__init__(source, ledger, hash_block=hash_block)

    @staticmethod
    def score(head: Head) -> int:
        """More than Mooncake's where rows have the ids of 16-token blocks, and none of 512."""
        short = any(_fits(row, 16) for row in head.rows)
        return (
            Mooncake.score(head) + 1 if short and not any(_fits(r, 512) for r in head.rows) else 0
        )


def _fits(row: Record, hash_block: int) -> bool:
    prompt, ids = row.get("input_length"), row.get("hash_ids")
    if type(prompt) is not int or type(ids) is not list or prompt < 32:
        return False
    return len(ids) in (prompt // hash_block, -(-prompt // hash_block))
