"""Tables as Parquet files, the same bytes for the same rows.

Arrow arrays are built from the buffers of numpy arrays and read through them: the obvious
``pa.array(column)`` and ``column.to_numpy()`` import pandas where it is installed, which takes longer
than many a replay.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kvsim.errors import ConfigError
from kvsim.tables import NUMBERS, SAMPLE_COLUMNS, TEXTS, RequestTable, SampleTable

if TYPE_CHECKING:
    from kvsim.tables import Flags, Floats, Ints

TIMES = ("arrival", "scheduled", "first_token", "finished", "stalled", "time")
REQUEST_COLUMNS = NUMBERS + TEXTS
_COMPRESSION = "zstd"


def _schema(names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([(name, _type(name)) for name in names])


def _type(name: str) -> pa.DataType:
    if name in TEXTS:
        return pa.string()
    return pa.float64() if name in TIMES else pa.int64()


class RequestWriter:
    """Writes ``requests.parquet`` batch by batch, one row group each."""

    def __init__(self, path: Path) -> None:
        self._writer = _writer(path, REQUEST_COLUMNS)

    def write(self, table: RequestTable) -> None:
        """Append a row group."""
        if len(table):
            self._writer.write_table(_arrow(table, REQUEST_COLUMNS))

    def close(self) -> None:
        """Write the footer, without which the file cannot be read."""
        self._writer.close()


def write_samples(path: Path, samples: SampleTable) -> None:
    """Write ``samples.parquet``."""
    writer = _writer(path, SAMPLE_COLUMNS)
    writer.write_table(_arrow(samples, SAMPLE_COLUMNS))
    writer.close()


def _writer(path: Path, names: tuple[str, ...]) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path.absolute(),
        _schema(names),
        compression=_COMPRESSION,
        use_dictionary=False,
        write_statistics=False,
    )


def _arrow(table: RequestTable | SampleTable, names: tuple[str, ...]) -> pa.Table:
    arrays = [
        _strings(column) if isinstance(column, list) else _numbers(column)
        for column in (getattr(table, name) for name in names)
    ]
    return pa.Table.from_arrays(arrays, schema=_schema(names))


def _numbers(column: Floats | Ints) -> pa.Array:
    values = np.ascontiguousarray(column)
    if values.dtype != np.float64:
        return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
    valid = _bitmap(~np.isnan(values))
    return pa.Array.from_buffers(pa.float64(), len(values), [valid, pa.py_buffer(values)])


def _strings(texts: list[str | None]) -> pa.Array:
    present = [text is not None for text in texts]
    if not any(present):
        return pa.nulls(len(texts), pa.string())
    encoded = [(text or "").encode() for text in texts]
    offsets = np.zeros(len(texts) + 1, dtype=np.int32)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    data = [_bitmap(np.array(present)), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(texts), data)


def _bitmap(valid: Flags) -> pa.Buffer | None:
    """Arrow's validity bits; None when all are valid."""
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def read_requests(path: Path) -> RequestTable:
    """The requests of a run; :class:`ConfigError` when the file is not such a table."""
    return RequestTable(*_columns(path, REQUEST_COLUMNS))


def read_samples(path: Path) -> SampleTable:
    """The samples of a run; :class:`ConfigError` when the file is not such a table."""
    return SampleTable(*_columns(path, SAMPLE_COLUMNS))


def _columns(path: Path, names: tuple[str, ...]) -> list[Any]:
    try:
        with pq.ParquetFile(path.absolute()) as file:
            table = file.read()
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
    if table.schema != _schema(names):
        seen = ", ".join(table.schema.names)
        raise ConfigError(f"{path}: has columns {seen}; a run has {', '.join(names)}")
    return [_values(table[name].combine_chunks()) for name in names]


def _values(column: pa.Array) -> Floats | Ints | list[str | None]:
    if pa.types.is_string(column.type):
        texts: list[str | None] = column.to_pylist()
        return texts
    if pa.types.is_integer(column.type):
        return np.frombuffer(column.buffers()[1], np.int64, len(column), column.offset * 8)
    times = np.frombuffer(column.buffers()[1], np.float64, len(column), column.offset * 8).copy()
    if column.null_count:
        times[[not value.is_valid for value in column]] = np.nan
    return times
