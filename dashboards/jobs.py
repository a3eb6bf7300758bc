"""Work that goes on while pages are looked at: replays and plans, in threads of the server.

A job has a key that says all it depends on, so that the same work is done once, whoever asks for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar, cast

import streamlit as st

from kvsim.errors import KvsimError

T = TypeVar("T")
Told = Callable[[str, int], None]
AT_ONCE = 2
KEPT = 32
"""Jobs whose results are kept, the latest ones."""


class StoppedError(KvsimError):
    """The work was not wanted any more."""


class Job(Generic[T]):
    """One piece of work: what it is at, then its result or what went wrong."""

    def __init__(self, work: Callable[[Told], T]) -> None:
        self._work = work
        self._stopped = threading.Event()
        self._over = threading.Event()
        self._result: T | None = None
        self.step = ""
        self.count = 0
        self.error: KvsimError | None = None

    def run(self) -> None:
        """Do the work."""
        try:
            self.tell("", 0)  # it may have been stopped while it waited for its turn
            self._result = self._work(self.tell)
        except KvsimError as error:
            self.error = error
        except Exception as error:
            self.error = KvsimError(f"{type(error).__name__}: {error}")
            raise
        finally:
            self._over.set()

    def tell(self, step: str, count: int) -> None:
        """Note how far it is; StoppedError if it should go no further."""
        if self._stopped.is_set():
            raise StoppedError("stopped")
        self.step, self.count = step, count

    def stop(self) -> None:
        """Let it end at its next step."""
        self._stopped.set()

    @property
    def is_over(self) -> bool:
        """Whether there is a result or an error."""
        return self._over.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for the end for a while; whether it came."""
        return self._over.wait(seconds)

    @property
    def result(self) -> T:
        """What came of it, once it is over; raises its error."""
        if self.error is not None:
            raise self.error
        return cast("T", self._result)


class Jobs:
    """All jobs by key; a few run at once."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="kvsim-job")
        self._known: dict[str, Job[object]] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> Job[object] | None:
        """The job with this key, if it was ever started."""
        with self._lock:
            return self._known.get(key)

    def start(self, key: str, work: Callable[[Told], T]) -> Job[T]:
        """The job with this key; one that was stopped begins anew."""
        with self._lock:
            job = self._known.get(key)
            if job is None or isinstance(job.error, StoppedError):
                job = self._known[key] = cast("Job[object]", Job(work))
                self._forget()
                self._pool.submit(job.run)
            return cast("Job[T]", job)

    def forget(self, key: str) -> None:
        """Let a job that is over be started again."""
        with self._lock:
            job = self._known.get(key)
            if job is not None and job.is_over:
                del self._known[key]

    def _forget(self) -> None:
        over = [key for key, job in self._known.items() if job.is_over]
        for key in over[: max(0, len(self._known) - KEPT)]:
            del self._known[key]


@st.cache_resource(show_spinner=False)
def jobs() -> Jobs:
    """Those of this server."""
    return Jobs()
