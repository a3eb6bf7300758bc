"""What replays have shown before, on disk: a plan that is asked again with other prices is instant.

An entry is named by everything that it depends on: the trial, the trace's content, the files that the
scenario names, and kvsim's own code and data. So none is ever out of date, and none is ever wrong to
take; old ones only fill the file, which is why there is a bound.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple, Self

from kvsim.errors import ConfigError
from kvsim.scenario import Scenario

FILE = "replays.sqlite"
SCHEMA_VERSION = 1
APPLICATION = 0x6B767072
"""``kvpr``: tells it from other SQLite files."""
MOST = 20_000
"""Entries that are kept, the latest: about 60 MB."""
PACKAGE = Path(__file__).resolve().parent.parent
SCHEMA = """
CREATE TABLE IF NOT EXISTS replays (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, found TEXT NOT NULL
) STRICT
"""


def default_folder() -> Path:
    """Where caches of this user belong (``XDG_CACHE_HOME``)."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "kvsim"


class Archive:
    """Findings by name, in a folder that several processes may share: a context manager.

    ConfigError when the folder cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        with self._used():
            folder.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
            self._prepare()

    def _prepare(self) -> None:
        is_new = not self._number("SELECT count(*) FROM sqlite_master")
        if not is_new and self._number("PRAGMA application_id") != APPLICATION:
            raise ConfigError(f"{self.path}: is not a cache of replays; --no-cache goes without")
        seen = SCHEMA_VERSION if is_new else self._number("PRAGMA user_version")
        if seen != SCHEMA_VERSION:
            raise ConfigError(
                f"{self.path}: a cache of schema {seen}, this kvsim reads {SCHEMA_VERSION}; "
                "--no-cache goes without"
            )
        for statement in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = NORMAL",
            f"PRAGMA application_id = {APPLICATION}",
            f"PRAGMA user_version = {SCHEMA_VERSION}",
            SCHEMA,
        ):
            self._connection.execute(statement)

    def _number(self, query: str) -> int:
        return int(self._connection.execute(query).fetchone()[0])

    def find(self, name: str) -> str | None:
        """What is known under a name."""
        with self._used():
            query = self._connection.execute("SELECT found FROM replays WHERE name = ?", (name,))
            row = query.fetchone()
        return None if row is None else str(row[0])

    def keep(self, name: str, found: str) -> None:
        """Remember a finding; the oldest ones go when there are too many."""
        with self._used():
            self._connection.execute(
                "INSERT OR REPLACE INTO replays (name, found) VALUES (?, ?)", (name, found)
            )
            self._connection.execute(
                "DELETE FROM replays WHERE number <= (SELECT max(number) FROM replays) - ?", (MOST,)
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @contextmanager
    def _used(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"{self.path}: cannot be used as a cache: {reason}; --no-cache goes without"
            ) from None


class Memory(NamedTuple):
    """An archive, for the trials of one plan."""

    archive: Archive
    context: str

    def find(self, key: str) -> str | None:
        """What is known of a trial."""
        return self.archive.find(digest((self.context, key)))

    def keep(self, key: str, found: str) -> None:
        """Remember what a trial has shown."""
        self.archive.keep(digest((self.context, key)), found)


def context(scenario: Scenario, trace_sha256: str | None) -> str | None:
    """Names what every trial of a plan depends on besides itself; None if that cannot be named."""
    if trace_sha256 is None or any(":" in name for name in plug_ins(scenario)):
        return None
    return digest((own_code(), trace_sha256, *contents_of_files(scenario)))


def plug_ins(scenario: Scenario) -> Iterator[str]:
    """Names of the scenario's components; one with a colon is code from elsewhere."""
    for value in dict(scenario).values():
        name = getattr(value, "name", None)
        if isinstance(name, str):
            yield name


def contents_of_files(scenario: Scenario, *others: Path | None) -> list[str]:
    """Digests of the files that settings and options of plug-ins name, and of others."""
    named = [*map(Path, texts(scenario.model_dump(mode="json"))), *filter(None, others)]
    return [found for path in named if (found := content(path)) is not None]


def content(path: Path) -> str | None:
    """Digest of a file; None if it is none."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return None


def texts(value: object) -> Iterator[str]:
    """Every text in nested settings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from texts(part)


@cache
def own_code() -> str:
    """Digest of kvsim's code and data."""
    files = sorted(p for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    parts = [
        f"{p.relative_to(PACKAGE)} {hashlib.sha256(p.read_bytes()).hexdigest()}" for p in files
    ]
    return digest(parts)


def digest(parts: Iterable[str]) -> str:
    """One name for several."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
