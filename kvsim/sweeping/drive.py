"""Runs what a ledger has left, by workers of any kind, until everything is settled."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from kvsim.errors import CapacityError, ConfigError, KvsimError, TraceError
from kvsim.runs import run_path
from kvsim.sweeping.configuration import Configuration, Key, described
from kvsim.sweeping.database import FILE
from kvsim.sweeping.ledger import ATTEMPTS, Counts, Lease, Ledger
from kvsim.sweeping.owner import Owner
from kvsim.sweeping.worker import Died, Done, Failed, Outcome, Report, Task

TICK = 0.5
"""Seconds between heartbeats."""
RUNS = "runs"
"""Folder of the runs' tables, where they are kept."""

Watch = Callable[[Counts], None]


class Workers(Protocol):
    """Perform tasks somewhere. ``close`` ends what still runs."""

    @property
    def room(self) -> int:
        """Tasks that could begin now."""
        ...

    def submit(self, key: Key, task: Task) -> None:
        """Begin a task."""
        ...

    def wait(self, seconds: float) -> Sequence[Report]:
        """Outcomes that there are, or come within ``seconds``."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


def sweep(
    matrix: Sequence[Configuration],
    out: Path,
    workers: Workers,
    *,
    resume: bool = False,
    continue_on_error: bool = False,
    keep_runs: bool = False,
    watch: Watch = lambda counts: None,
) -> Counts:
    """Run every configuration that has no result yet; the ledger of the folder ``out`` keeps them.

    The first failure is raised and ends the sweep, unless ``continue_on_error``. ``keep_runs`` also
    writes the tables of each run, to ``out/runs``.
    """
    if not resume:
        _refuse_used(out)
    with Ledger.create(out) as ledger:
        ledger.enrol(matrix)
        drive = Drive(ledger, workers, out / RUNS if keep_runs else None)
        drive.run(watch, continue_on_error=continue_on_error)
        return ledger.counts()


def _refuse_used(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out}: exists and is not a folder")
    if (out / FILE).is_file():
        with Ledger.open(out) as ledger:
            counts = ledger.counts()
            if not counts.total:
                raise ledger.unbegun
        raise ConfigError(
            f"{out}: holds a sweep already, {counts.done} of {counts.total} done; --resume continues "
            "it, or choose another folder"
        )
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out}: is not empty and not a sweep; choose another folder")


class Drive:
    """One process's part in a sweep."""

    def __init__(self, ledger: Ledger, workers: Workers, runs: Path | None) -> None:
        self._ledger = ledger
        self._workers = workers
        self._runs = runs
        self._owner = Owner.this_process()
        self._leases: dict[Key, Lease] = {}
        self._next_tick = 0.0

    def run(self, watch: Watch, *, continue_on_error: bool) -> None:
        """Work until nothing is left, not even what others have leased."""
        try:
            self._ledger.reclaim(time.time())
            self._clean()
            while self._feed(watch):
                for key, outcome in self._workers.wait(TICK):
                    lease = self._leases.pop(key)
                    failure = self._record(lease, outcome)
                    if failure is not None and not continue_on_error:
                        raise _as_error(lease, failure)
            watch(self._ledger.counts())
        finally:
            self._workers.close()
            self._ledger.release(self._owner)
            self._clean()

    def _feed(self, watch: Watch) -> bool:
        """Give the workers what they have room for; False when the sweep is over."""
        now = time.time()
        if now >= self._next_tick:
            self._next_tick = now + TICK
            self._ledger.heartbeat(self._owner, now)
            self._ledger.reclaim(now)
            watch(self._ledger.counts())
        while self._workers.room and (lease := self._ledger.claim(self._owner, now)):
            self._leases[lease.key] = lease
            self._workers.submit(lease.key, self._task(lease))
        return bool(self._leases) or self._ledger.counts().leased > 0

    def _task(self, lease: Lease) -> Task:
        out = run_path(self._runs, lease.key.name).absolute() if self._runs else None
        return Task(lease.scenario, lease.trace, lease.key.trace, str(out) if out else None)

    def _record(self, lease: Lease, outcome: Outcome) -> Failed | None:
        """Settle a configuration, or let it be tried again; returns its failure, if it is one."""
        if isinstance(outcome, Done):
            self._ledger.finish(lease.key, self._owner, outcome.result)
            return None
        if isinstance(outcome, Died):
            deaths = lease.attempts + 1
            if deaths < ATTEMPTS:
                self._ledger.retry(lease.key, self._owner, outcome.error)
                return None
            outcome = Failed(f"{outcome.error}, {deaths} times", KvsimError.exit_code)
        self._ledger.fail(lease.key, self._owner, outcome.error, outcome.exit_code)
        return outcome

    def _clean(self) -> None:
        """Remove what killed runs have left behind, unless somebody is at work."""
        if self._runs is None:
            return
        with self._ledger.between_leases() as alone:
            for leftover in self._runs.glob(".*") if alone else ():
                shutil.rmtree(leftover, ignore_errors=True)


def _as_error(lease: Lease, failure: Failed) -> KvsimError:
    kinds = (ConfigError, TraceError, CapacityError)
    kind = next((kind for kind in kinds if kind.exit_code == failure.exit_code), KvsimError)
    return kind(f"{described(lease.number, lease.point)}: {failure.error}")
