"""The ledger of a sweep: which configurations there are, who runs them, what came of them.

One SQLite file in WAL mode. Every change is one transaction, so a process can be killed at any moment
and leaves either the state before or the state after. Whoever runs a configuration holds a *lease* on
it: its owner renews it with a heartbeat, and when the owner is gone, the lease is free for others. A
result is only accepted from who holds the lease, so each configuration gets exactly one.
"""

from __future__ import annotations

import os
import secrets
import socket
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import orjson

from kvsim import __version__
from kvsim.errors import ConfigError
from kvsim.sweeping.configuration import Configuration, Key
from kvsim.sweeping.matrix import Point

FILE = "sweep.sqlite"
SCHEMA_VERSION = 1
"""Of the ledger; a reader refuses any other."""
APPLICATION = 0x6B767377
"""``kvsw``: tells a ledger from other SQLite files."""
LEASE = 30.0
"""Seconds for which a lease holds without a heartbeat."""
ATTEMPTS = 3
"""Times that a configuration may take its worker down with it."""
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

_FREE = "owner = NULL, heartbeat = NULL, expires = NULL"
_MINE = "WHERE scenario_hash = ? AND trace_hash = ? AND status = 'leased' AND owner = ?"


class Owner(NamedTuple):
    """Who holds a lease."""

    host: str
    pid: int
    token: str
    """Tells it from an earlier process of the same number."""

    @classmethod
    def this_process(cls) -> Self:
        """A new owner."""
        return cls(socket.gethostname(), os.getpid(), secrets.token_hex(4))

    @classmethod
    def read(cls, text: str) -> Self:
        """The owner that ``str`` wrote."""
        host, pid, token = text.rsplit(":", 2)
        return cls(host, int(pid), token)

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.token}"

    @property
    def is_gone(self) -> bool:
        """Whether its process is known to have ended; of another host nothing is known.

        Mistakes are harmless: a process that took over the number delays until the lease expires, and
        a result of an owner that was given up too early is refused.
        """
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # of another user, hence alive
        return False


class Lease(NamedTuple):
    """A configuration that this process may run."""

    key: Key
    number: int
    """In the matrix, from 1."""
    point: Point
    scenario: str
    """JSON."""
    trace: str
    attempts: int
    """That ended with the death of a worker."""


class Entry(NamedTuple):
    """What the ledger knows about a configuration of the matrix."""

    position: int
    key: Key
    point: Point
    scenario: dict[str, object]
    trace: str
    status: str
    error: str | None
    result: dict[str, object] | None
    """``manifest`` and ``summary``."""


class Counts(NamedTuple):
    """How far a sweep is."""

    pending: int
    leased: int
    done: int
    failed: int

    @property
    def total(self) -> int:
        """All configurations of the matrix."""
        return sum(self)


class Ledger:
    """An open ledger. Times are Unix seconds, given by the caller."""

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
            if not self._number("SELECT count(*) FROM sqlite_master"):
                for statement in SCHEMA.split(";\n"):
                    self._connection.execute(statement)
        self._verify()

    def _verify(self) -> None:
        if self._number("PRAGMA application_id") != APPLICATION:
            raise ConfigError(f"{self.path}: is not the ledger of a sweep")
        version = self._number("PRAGMA user_version")
        if version != SCHEMA_VERSION:
            raise ConfigError(
                f"{self.path}: a ledger of schema {version}; this kvsim reads {SCHEMA_VERSION}"
            )

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

    # The matrix.

    def enrol(self, matrix: Iterable[Configuration]) -> None:
        """Make these the configurations of the sweep; what is known about them stays known.

        What failed before gets another chance. Results of another version of kvsim would not be
        comparable: they are refused.
        """
        with self._writing():
            self._refuse_other_version()
            self._connection.execute("UPDATE configurations SET position = NULL")
            self._connection.executemany(
                """INSERT INTO configurations
                (position, scenario_hash, trace_hash, point, scenario, trace, kvsim_version)
                VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
                position = excluded.position, point = excluded.point, trace = excluded.trace""",
                (_row(position, made) for position, made in enumerate(matrix)),
            )
            self._connection.execute(
                "UPDATE configurations SET status = 'pending', attempts = 0, error = NULL, "
                "exit_code = NULL WHERE status = 'failed' AND position IS NOT NULL"
            )

    def _refuse_other_version(self) -> None:
        query = "SELECT kvsim_version FROM configurations WHERE kvsim_version != ? LIMIT 1"
        other = self._connection.execute(query, (__version__,)).fetchone()
        if other is not None:
            raise ConfigError(
                f"{self.path}: made by kvsim {other[0]}, this is {__version__}: their results cannot "
                "be compared; choose another folder"
            )

    def entries(self) -> Iterator[Entry]:
        """All configurations of the matrix, in its order."""
        rows = self._connection.execute(
            """SELECT position, scenario_hash, trace_hash, point, scenario, trace, status, error,
            result FROM configurations WHERE position IS NOT NULL ORDER BY position"""
        )
        for position, scenario_hash, trace_hash, point, scenario, trace, *rest in rows:
            status, error, result = rest
            yield Entry(
                position,
                Key(scenario_hash, trace_hash),
                orjson.loads(point),
                orjson.loads(scenario),
                trace,
                status,
                error,
                None if result is None else orjson.loads(result),
            )

    def counts(self) -> Counts:
        """How many configurations are in which state."""
        found = dict(
            self._connection.execute(
                "SELECT status, count(*) FROM configurations "
                "WHERE position IS NOT NULL GROUP BY status"
            )
        )
        return Counts(*(found.get(status, 0) for status in Counts._fields))

    # Leases.

    def claim(self, owner: Owner, now: float) -> Lease | None:
        """The first configuration that waits, now leased to ``owner``; None if none does."""
        with self._writing():
            found = self._connection.execute(
                """SELECT scenario_hash, trace_hash, position + 1, point, scenario, trace, attempts
                FROM configurations WHERE status = 'pending' AND position IS NOT NULL
                ORDER BY position LIMIT 1"""
            ).fetchone()
            if found is None:
                return None
            key = Key(*found[:2])
            self._connection.execute(
                "UPDATE configurations SET status = 'leased', owner = ?, heartbeat = ?, expires = ? "
                "WHERE scenario_hash = ? AND trace_hash = ?",
                (str(owner), now, now + LEASE, *key),
            )
        number, point, *rest = found[2:]
        return Lease(key, number, orjson.loads(point), *rest)

    def heartbeat(self, owner: Owner, now: float) -> None:
        """Renew the leases of ``owner``."""
        self._connection.execute(
            "UPDATE configurations SET heartbeat = ?, expires = ? "
            "WHERE status = 'leased' AND owner = ?",
            (now, now + LEASE, str(owner)),
        )

    def reclaim(self, now: float) -> int:
        """Free the leases that expired and those whose owner is gone; returns how many."""
        with self._writing():
            leases = self._connection.execute(
                "SELECT owner, max(expires) FROM configurations WHERE status = 'leased' GROUP BY owner"
            ).fetchall()
            return sum(
                self._free(owner)
                for owner, expires in leases
                if expires < now or Owner.read(owner).is_gone
            )

    @contextmanager
    def between_leases(self) -> Iterator[bool]:
        """Whether nobody holds a lease; if so, nobody gets one before the block ends."""
        with self._writing():
            yield not self._number("SELECT count(*) FROM configurations WHERE status = 'leased'")

    def release(self, owner: Owner) -> None:
        """Give back all leases of ``owner``."""
        self._free(str(owner))

    def _free(self, owner: str) -> int:
        return self._connection.execute(
            f"UPDATE configurations SET status = 'pending', {_FREE} "
            "WHERE status = 'leased' AND owner = ?",
            (owner,),
        ).rowcount

    # Results.

    def finish(self, key: Key, owner: Owner, result: bytes) -> bool:
        """Record a result, JSON; False if the lease was lost, and with it the right to do so."""
        return self._settle(
            f"status = 'done', result = ?, error = NULL, {_FREE}", (result.decode(),), key, owner
        )

    def fail(self, key: Key, owner: Owner, error: str, exit_code: int) -> bool:
        """Record that a configuration cannot be run."""
        return self._settle(
            f"status = 'failed', error = ?, exit_code = ?, {_FREE}", (error, exit_code), key, owner
        )

    def retry(self, key: Key, owner: Owner, error: str) -> bool:
        """Record that the worker died; another one may try again."""
        return self._settle(
            f"status = 'pending', error = ?, attempts = attempts + 1, {_FREE}", (error,), key, owner
        )

    def _settle(self, changes: str, values: tuple[object, ...], key: Key, owner: Owner) -> bool:
        update = f"UPDATE configurations SET {changes} {_MINE}"
        return self._connection.execute(update, (*values, *key, str(owner))).rowcount == 1


def _row(position: int, made: Configuration) -> tuple[object, ...]:
    scenario = orjson.dumps(made.scenario.model_dump(mode="json")).decode()
    point = orjson.dumps(made.point, default=str).decode()
    return position, *made.key, point, scenario, made.trace, __version__


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
