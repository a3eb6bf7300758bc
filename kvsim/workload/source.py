"""The bytes of a trace: a file, a pipe, standard input or a folder; plain or compressed.

A pipe can be read once only, but a trace is read several times (to recognise its format, to measure
its rate, to hash it), so what comes through a pipe is kept in a temporary file.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kvsim.errors import TraceError

GZIP = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"
FOREIGN = {
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "zstd-compressed",
    b"BZh": "bzip2-compressed",
    b"\xfd7zXZ\x00": "xz-compressed",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
}
_CHUNK = 1 << 16


class Source:
    """One file of a trace, opened as often as needed."""

    def __init__(self, path: str | Path) -> None:
        self.name = "stdin" if str(path) == "-" else str(path)
        self.path = Path(path)
        self._spool = None if self._is_regular() else self._spooled()
        if self._spool is not None:
            self.path = Path(self._spool.name)
        self._check_start()

    @property
    def members(self) -> list[Source]:
        """The files of the trace, in order."""
        return [self]

    def _is_regular(self) -> bool:
        return self.name != "stdin" and stat.S_ISREG(file_mode(self.path))

    def _spooled(self) -> IO[bytes]:
        """A pipe's content as a temporary file that goes away with this source."""
        spool = tempfile.NamedTemporaryFile(prefix="kvsim-")  # noqa: SIM115 - lives as long as self
        with readable(self.name):
            if self.name == "stdin":
                shutil.copyfileobj(sys.stdin.buffer, spool)
            else:
                shutil.copyfileobj(self.path.open("rb"), spool)
        spool.flush()
        return spool

    def _check_start(self) -> None:
        with readable(self.name), self.path.open("rb") as file:
            start = file.read(8)
        if not start:
            raise TraceError(f"{self.name}: is empty; accepted: a trace with at least one request")
        for magic, kind in FOREIGN.items():
            if start.startswith(magic):
                raise TraceError(f"{self.name}: is {kind}; accepted: UTF-8 text, gzip, Parquet")

    def open(self) -> io.BufferedReader:
        """The content from its start, decompressed; the caller closes it."""
        raw = self.path.open("rb")
        if raw.peek(2)[:2] != GZIP:
            return raw
        # GzipFile finds lines in Python; a buffered reader around it finds them in C.
        return io.BufferedReader(gzip.GzipFile(fileobj=raw), _CHUNK)

    def head(self, size: int) -> bytes:
        """The first ``size`` decompressed bytes, or all there are, without a byte-order mark."""
        with readable(self.name), self.open() as file:
            return file.read(size).removeprefix(BOM)

    def lines(self) -> Iterator[bytes]:
        """The lines with their ends, without a byte-order mark."""
        with readable(self.name), self.open() as file:
            yield file.readline().removeprefix(BOM)
            yield from file

    def sha256(self) -> str:
        """SHA-256 of the file's own bytes (compressed, if it is), hexadecimal."""
        with readable(self.name), self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


class Folder(Source):
    """A directory whose JSON files are one trace, in the order of their names."""

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        self.path = Path(path)
        found = [p for p in sorted(self.path.iterdir()) if p.name.endswith((".json", ".json.gz"))]
        if not found:
            raise TraceError(
                f"{self.name}: is a directory without .json files; accepted: a trace file, or a "
                "directory of agentic-coding files (.json, .json.gz)"
            )
        self._members = [Source(member) for member in found]

    @property
    def members(self) -> list[Source]:
        """The files of the trace, in order."""
        return self._members

    def head(self, size: int) -> bytes:
        """The head of the first file."""
        return self._members[0].head(size)

    def sha256(self) -> str:
        """SHA-256 of the files' own digests, one after another, hexadecimal."""
        digests = "".join(member.sha256() for member in self._members)
        return hashlib.sha256(digests.encode()).hexdigest()


def open_source(path: str | Path) -> Source:
    """The file, pipe (``-``: standard input) or folder at ``path``."""
    is_folder = str(path) != "-" and stat.S_ISDIR(file_mode(Path(path)))
    return Folder(path) if is_folder else Source(path)


def file_mode(path: Path) -> int:
    """The mode bits of an existing file."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        reason = "no such file"
    except (OSError, ValueError) as why:
        reason = _reason(why)
    raise TraceError(f"{path}: {reason}; accepted: a trace file, or - for stdin")


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn failures to read or to decompress into a ``TraceError`` that names the file."""
    try:
        yield
    except EOFError:
        raise TraceError(f"{name}: the gzip data end early; accepted: a whole file") from None
    except (zlib.error, gzip.BadGzipFile):
        raise TraceError(f"{name}: the gzip data are damaged; accepted: a whole file") from None
    except OSError as why:
        raise TraceError(f"{name}: cannot be read, {_reason(why)}") from None


def _reason(why: OSError | ValueError) -> str:
    """What the system says is wrong, without its numbers and paths."""
    return (why.strerror or str(why)).lower() if isinstance(why, OSError) else str(why)
