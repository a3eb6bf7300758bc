"""Writing traces: as JSON lines or Parquet, compressed if their name says so."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO

import orjson

from kvsim.core import Request
from kvsim.errors import ConfigError, unknown
from kvsim.files import whole_file

_BATCH = 4096
Sink = IO[bytes] | gzip.GzipFile
Line = Callable[[Request], bytes]


DEFAULTS = Request._field_defaults


def kvsim_line(request: Request) -> bytes:
    """A line of kvsim JSONL: the fields that say something. The row is the line's own place."""
    fields = zip(Request._fields[1:], request[1:], strict=True)
    record = {name: value for name, value in fields if value != DEFAULTS.get(name)}
    if request.hash_ids is None:
        record.pop("hash_block", None)
    else:
        record["hash_ids"] = list(request.hash_ids)
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def mooncake_line(request: Request) -> bytes:
    """A line of Mooncake JSONL; times are rounded to ms, ids and sessions kept, all else dropped."""
    record: dict[str, object] = {}
    if request.arrival is not None:
        record["timestamp"] = round(request.arrival * 1000)
    record |= {"input_length": request.prompt_tokens, "output_length": request.output_tokens}
    record["hash_ids"] = list(request.hash_ids or ())
    if request.hash_ids and request.hash_block != 512:
        record["block_size"] = request.hash_block
    if request.session is not None:
        record["session_id"] = request.session
    if request.arrival is None:
        record["delay"] = round((request.think_time or 0.0) * 1000)
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def write_kvsim(requests: Iterable[Request], file: Sink) -> int:
    """Write kvsim JSONL; returns the number of requests."""
    return _write_lines(requests, file, kvsim_line)


def write_mooncake(requests: Iterable[Request], file: Sink) -> int:
    """Write Mooncake JSONL; returns the number of requests."""
    return _write_lines(requests, file, mooncake_line)


def _write_lines(requests: Iterable[Request], file: Sink, line_of: Line) -> int:
    count = 0
    for batch in _batches(requests):
        file.write(b"".join(map(line_of, batch)))
        count += len(batch)
    return count


def write_parquet(requests: Iterable[Request], file: Sink) -> int:
    """Write Parquet, a row group for each batch; returns the number of requests."""
    import pyarrow as pa
    import pyarrow.json
    import pyarrow.parquet

    schema = pa.schema(
        [
            ("arrival", pa.float64()),
            ("prompt_tokens", pa.int64()),
            ("output_tokens", pa.int64()),
            ("hash_ids", pa.list_(pa.uint64())),
            ("hash_block", pa.int64()),
            ("session", pa.string()),
            ("think_time", pa.float64()),
            ("id", pa.string()),
            ("n", pa.int64()),
            ("beam_width", pa.int64()),
            ("priority", pa.int64()),
            ("tenant", pa.string()),
            ("user", pa.string()),
        ]
    )
    parsing = pyarrow.json.ParseOptions(schema)
    count = 0
    with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in _batches(requests):
            # Arrow's own JSON parser fills the columns: pa.array() would import pandas.
            lines = b"".join(map(kvsim_line, batch))
            reading = pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines))
            writer.write_table(pyarrow.json.read_json(io.BytesIO(lines), reading, parsing))
            count += len(batch)
    return count


WRITERS: dict[str, Callable[[Iterable[Request], Sink], int]] = {
    "kvsim": write_kvsim,
    "mooncake": write_mooncake,
    "parquet": write_parquet,
}
SUFFIXES = {".jsonl": "kvsim", ".jsonl.gz": "kvsim", ".parquet": "parquet"}


def _batches(requests: Iterable[Request]) -> Iterator[list[Request]]:
    source = iter(requests)
    while batch := list(islice(source, _BATCH)):
        yield batch


def write_trace(requests: Iterable[Request], path: str, format_name: str | None = None) -> int:
    """Write requests to ``path`` (``-``: standard output), gzip if it ends in ``.gz``.

    The format is a name of ``WRITERS``, or follows from the ending. The file appears when it is whole.
    Returns the number of requests. Raises ``ConfigError`` for a place that cannot be written.
    """
    write = WRITERS[chosen_format(path, format_name)]
    if path == "-":
        count = write(requests, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return count
    with whole_file(Path(path)) as file:
        if not path.endswith(".gz"):
            return write(requests, file)
        with compressed(file) as packed:
            return write(requests, packed)


def chosen_format(path: str, format_name: str | None) -> str:
    """The output format: the one named, or the one that the path ends in."""
    if format_name is not None:
        if format_name not in WRITERS:
            raise unknown("output format", format_name, WRITERS)
        if format_name == "parquet" and path.endswith(".gz"):
            raise ConfigError(
                f"{path}: Parquet is compressed already; accepted: a name without .gz"
            )
        return format_name
    if path == "-":
        return "kvsim"
    for suffix, name in SUFFIXES.items():
        if path.endswith(suffix):
            return name
    raise ConfigError(
        f"{path}: the ending does not tell the output format; accepted: {', '.join(SUFFIXES)}, or "
        f"--to with {', '.join(WRITERS)}"
    )


def compressed(file: IO[bytes]) -> gzip.GzipFile:
    """A gzip stream without a name or a date in it, so that equal content gives equal bytes."""
    return gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0)
