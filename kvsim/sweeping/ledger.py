"""The ledger of a sweep: which configurations there are, who runs them, what came of them.

One SQLite file in WAL mode. Every change is one transaction, so a process can be killed at any moment
and leaves either the state before or the state after. Whoever runs a configuration holds a *lease* on
it: its owner renews it with a heartbeat, and when the owner is gone, the lease is free for others. A
result is only accepted from who holds the lease, so each configuration gets exactly one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import orjson

from kvsim import __version__
from kvsim.errors import ConfigError
from kvsim.sweeping.configuration import Configuration, Key
from kvsim.sweeping.database import Database
from kvsim.sweeping.matrix import Point
from kvsim.sweeping.owner import Owner

LEASE = 30.0
"""Seconds for which a lease holds without a heartbeat."""
ATTEMPTS = 3
"""Times that a configuration may take its worker down with it."""
_FREE = "owner = NULL, heartbeat = NULL, expires = NULL"
_MINE = "WHERE scenario_hash = ? AND trace_hash = ? AND status = 'leased' AND owner = ?"


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


class Ledger(Database):
    """An open ledger. Times are Unix seconds, given by the caller."""

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
