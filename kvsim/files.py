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
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: is a device or a pipe; accepted: a file to write")


def require_file(path: Path, *read: str | Path) -> None:
    """Refuse, before any work, a file that could not be written or is one that is ``read``."""
    require_file_name(path)
    with written(path):
        if not path.parent.is_dir():
            raise ConfigError(f"{path}: cannot be written: {path.parent} is not a folder")
        if any(os.path.exists(one) and path.exists() and path.samefile(one) for one in read):
            raise ConfigError(f"{path}: is read by the same command; accepted: another file")
    require_writable(path)


def require_folder(folder: Path, *endings: str) -> None:
    """Refuse, before any work, a folder to which files with such endings could not be written.

    It need not exist, nor the folders above it.
    """
    with written(folder):
        if os.path.lexists(folder) and not folder.is_dir():
            raise ConfigError(f"{folder}: exists and is not a folder; accepted: a folder")
        _try_in(folder.absolute())
        for ending in endings:
            for place in folder.glob(f"*{ending}"):
                require_file_name(place)


def require_writable(path: Path) -> None:
    """Refuse, before any work, a place in whose nearest folder nothing can be made."""
    with written(path):
        _try_in(_part(path.absolute()))


def _try_in(place: Path) -> None:
    """Make a file in the nearest folder that there is, be it for a moment."""
    try:
        place.lstat()
    except (FileNotFoundError, NotADirectoryError):
        _try_in(place.parent)
    else:
        with TemporaryFile(dir=place):
            pass


def _part(path: Path) -> Path:
    """What a file is called until it is whole."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes its name only when all went well."""
    require_file_name(path)
    part = _part(path)
    with written(path):
        try:
            with part.open("xb") as file:
                yield file
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
