"""Independent runs side by side in processes; the results do not depend on how many."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from types import FrameType
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def run_all(work: Callable[[T], R], tasks: Iterable[T], jobs: int) -> list[R]:
    """``work`` of every task, in their order, by up to ``jobs`` processes.

    The first mistake ends all of them, as does an interrupt: no process is left behind.
    """
    todo = list(tasks)
    if min(jobs, len(todo)) <= 1:
        return [work(task) for task in todo]
    context = multiprocessing.get_context("spawn")
    workers = min(jobs, len(todo))
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_obey_the_parent) as pool:
        try:
            return list(pool.map(work, todo))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def _obey_the_parent() -> None:
    """Leave Ctrl-C, which reaches the whole group, to the parent; clean up when it says to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
