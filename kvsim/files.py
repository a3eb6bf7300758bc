"""Files that appear whole or not at all, and failures to write them as one line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from kvsim.errors import ConfigError


@contextmanager
def written(place: Path | None) -> Iterator[None]:
    """Turn a failure of the file system (no space, no permission) into a ``ConfigError``."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{place}: cannot be written: {error.strerror or error}") from None


def require_file_name(path: Path) -> None:
    """Refuse what can only be a folder (``.``, ``..``, ``/``) as the place of a file."""
    if "\0" in str(path):
        raise ConfigError(f"{str(path)!r}: cannot be written: no file has such a name")
    with written(path):
        if not path.name or path.name == ".." or path.is_dir():
            raise ConfigError(f"{path}: is a directory; accepted: a file to write")


def require_writable(path: Path) -> None:
    """Refuse, before any work, a place in whose nearest folder nothing can be made."""
    folder = path.absolute().parent
    with written(path):
        while not folder.exists():
            folder = folder.parent
        with TemporaryFile(dir=folder):
            pass


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes its name only when all went well."""
    require_file_name(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with written(path):
        try:
            with part.open("xb") as file:
                yield file
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
