"""Workers as tasks of a Ray cluster that is already there.

Its nodes have kvsim (and the plug-ins that the sweep names) installed and see the trace at the same
path; a node that finds another trace there says so instead of giving a wrong result.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from typing import Any

from kvsim.errors import ConfigError
from kvsim.sweeping.configuration import Key
from kvsim.sweeping.worker import Died, Outcome, Report, Task, outcome, perform

PATIENCE = 10.0
"""Seconds in which a cluster must answer."""


class RayWorkers:
    """Up to ``jobs`` tasks on the cluster at ``address``; without, as many as it has CPUs.

    Without an address, that of ``RAY_ADDRESS``, or of the cluster that runs on this machine.
    """

    def __init__(self, jobs: int | None = None, *, address: str | None = None) -> None:
        self._ray = ray = _connected(address or os.environ.get("RAY_ADDRESS") or "auto")
        self._jobs = jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))
        # Ray would retry without anybody knowing; the ledger counts.
        self._perform = ray.remote(num_cpus=1, max_retries=0)(perform)
        self._keys: dict[Any, Key] = {}

    @property
    def room(self) -> int:
        """Tasks that could begin now."""
        return self._jobs - len(self._keys)

    def submit(self, key: Key, task: Task) -> None:
        """Begin a task."""
        self._keys[self._perform.remote(task.encoded())] = key

    def wait(self, seconds: float) -> Sequence[Report]:
        """Outcomes that there are, or come within ``seconds``."""
        if not self._keys:
            time.sleep(seconds)
            return []
        ended, _ = self._ray.wait(list(self._keys), timeout=seconds)
        return [(self._keys.pop(reference), self._outcome(reference)) for reference in ended]

    def _outcome(self, reference: Any) -> Outcome:
        try:
            return outcome(self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            first_line = str(error).strip().partition("\n")[0]
            return Died(f"the worker died: {type(error).__name__}: {first_line}")

    def close(self) -> None:
        """End all tasks and leave the cluster."""
        for reference in self._keys:
            self._ray.cancel(reference, force=True)
        self._keys.clear()
        self._ray.shutdown()


def _connected(address: str) -> Any:
    try:
        import ray
    except ImportError:
        raise ConfigError(
            "--backend ray needs Ray: install the extra with pip install 'kvsim[cluster]'"
        ) from None
    try:
        _knock(address)
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"no Ray cluster at {address}: {reason}") from None
    return ray


def _knock(address: str) -> None:
    """Raise if nobody listens at ``host:port``: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "//" not in host:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
