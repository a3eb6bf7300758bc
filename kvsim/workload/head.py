"""The beginning of a trace, from which its format is recognised by content, not by file name."""

from __future__ import annotations

import re
from dataclasses import dataclass

import orjson

from kvsim.errors import TraceError
from kvsim.workload.fields import Record
from kvsim.workload.source import Source

HEAD = 1 << 16
LONG_HEAD = 1 << 26
"""Read only when the first line is longer than ``HEAD`` and nothing was recognised in that."""
_KEY = re.compile(r'"([A-Za-z_ ]+)"\s*:')


@dataclass(frozen=True, slots=True)
class Head:
    """What can be seen at the beginning of a trace."""

    text: str
    keys: frozenset[str]
    """Names of JSON members that occur, also in lines that are cut or malformed."""
    columns: frozenset[str]
    """Words of the first line split at commas, in lower case, when it is no JSON."""
    rows: tuple[Record, ...]
    """The JSON objects on the first whole lines."""
    is_parquet: bool

    def counts(self, *names: str) -> int:
        """How many of these keys or columns occur."""
        return sum(name in self.keys or name in self.columns for name in names)


def read_head(source: Source, size: int = HEAD) -> Head:
    """The first ``size`` bytes of a trace, looked at."""
    data = source.head(size)
    if data.startswith(b"PAR1"):
        return Head("", frozenset(), frozenset(), (), True)
    if b"\0" in data or _undecodable(data):
        raise TraceError(f"{source.name}: is binary; accepted: UTF-8 text, gzip of it, or Parquet")
    text = data.decode("utf-8", "replace").lstrip()
    return Head(text, frozenset(_KEY.findall(text)), _columns(text), _rows(data), False)


def _undecodable(data: bytes) -> bool:
    """Whether more than a few characters are not UTF-8 (the last may be cut)."""
    return data.decode("utf-8", "replace").count("\ufffd") > 3 + len(data) // 100


def _columns(text: str) -> frozenset[str]:
    if text.startswith(("{", "[")):
        return frozenset()
    first = text.partition("\n")[0]
    return frozenset(word.strip(' \r"').lower() for word in first.split(","))


def _rows(data: bytes, most: int = 20) -> tuple[Record, ...]:
    rows = []
    for line in data.split(b"\n", most)[:most]:
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if type(row) is dict:
            rows.append(row)
    return tuple(rows)
