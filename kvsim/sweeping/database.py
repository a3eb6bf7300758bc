"""The SQLite file of a ledger: made, recognised, changed in transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from kvsim.errors import ConfigError

FILE = "sweep.sqlite"
"""Name in the folder of the sweep."""
SCHEMA_VERSION = 1
"""Of the ledger; a reader refuses any other."""
APPLICATION = 0x6B767377
"""``kvsw``: tells a ledger from other SQLite files."""
PATIENCE = 30.0
"""Seconds to wait for another process that is writing."""

SCHEMA = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE configurations (
    scenario_hash TEXT NOT NULL,
    trace_hash TEXT NOT NULL,
    position INTEGER,             -- in the matrix, from 0; NULL: no longer part of it
    point TEXT NOT NULL,          -- JSON: what varies
    scenario TEXT NOT NULL,       -- JSON
    trace TEXT NOT NULL,          -- path
    kvsim_version TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'leased', 'done', 'failed')),
    attempts INTEGER NOT NULL DEFAULT 0,  -- that ended with the death of a worker
    owner TEXT,
    heartbeat REAL,               -- Unix seconds
    expires REAL,                 -- Unix seconds
    error TEXT,                   -- the last one
    exit_code INTEGER,
    result TEXT,                  -- JSON: manifest and summary
    PRIMARY KEY (scenario_hash, trace_hash),
    CHECK ((status = 'leased') = (owner IS NOT NULL)),
    CHECK ((status = 'done') = (result IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX by_status ON configurations (status, position);
"""


class Database:
    """An open ledger file."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path

    @classmethod
    def create(cls, folder: Path) -> Self:
        """The ledger in a folder, new if it has none."""
        path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from None
        with _opening(path):
            ledger = cls(_connected(path), path)
            ledger._prepare()
        return ledger

    @classmethod
    def open(cls, folder: Path) -> Self:
        """The ledger that a folder has."""
        path = folder / FILE
        if not path.is_file():
            raise ConfigError(f"{folder}: holds no sweep ({FILE} is missing)")
        with _opening(path):
            ledger = cls(_connected(path), path)
            ledger._verify()
        return ledger

    def _prepare(self) -> None:
        self._connection.execute("PRAGMA journal_mode = WAL")
        with self._writing():
            if self._is_empty:
                for statement in SCHEMA.split(";\n"):
                    self._connection.execute(statement)
        self._verify()

    @property
    def _is_empty(self) -> bool:
        """Whether it has no tables: whoever made it was ended before its first transaction."""
        return not self._number("SELECT count(*) FROM sqlite_master")

    def _verify(self) -> None:
        if self._is_empty:
            raise self.unbegun
        if self._number("PRAGMA application_id") != APPLICATION:
            raise ConfigError(f"{self.path}: is not the ledger of a sweep")
        version = self._number("PRAGMA user_version")
        if version != SCHEMA_VERSION:
            raise ConfigError(
                f"{self.path}: a ledger of schema {version}; this kvsim reads {SCHEMA_VERSION}"
            )

    @property
    def unbegun(self) -> ConfigError:
        """Says of a ledger without configurations what is to be done."""
        return ConfigError(f"{self.path}: a sweep that ended before it began; --resume begins it")

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if isinstance(error, sqlite3.Error):
            raise _unusable(self.path, error) from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """A transaction that no other writer can come between."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _number(self, query: str) -> int:
        return int(self._connection.execute(query).fetchone()[0])


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


@contextmanager
def _opening(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, error: sqlite3.Error) -> ConfigError:
    return ConfigError(f"{path}: cannot be used as a ledger: {error}")
