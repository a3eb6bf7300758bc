"""Independent runs side by side in processes; the results do not depend on how many."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from types import FrameType
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
GRACE = 1.0
"""Seconds for a task to clean up."""


def run_all(work: Callable[[T], R], tasks: Iterable[T], jobs: int) -> list[R]:
    """``work`` of every task, in their order, by up to ``jobs`` processes.

    The first mistake ends all of them, as does an interrupt or the end of this process, whatever
    the reason: no process is left behind.
    """
    todo = list(tasks)
    if min(jobs, len(todo)) <= 1:
        return [work(task) for task in todo]
    context = multiprocessing.get_context("spawn")
    workers = min(jobs, len(todo))
    with ProcessPoolExecutor(workers, mp_context=context, initializer=obey_the_parent) as pool:
        try:
            return list(pool.map(work, todo))
        except BaseException:
            end(pool)
            raise


def end(pool: ProcessPoolExecutor) -> None:
    """End a pool in the middle of its work; the processes of other pools go on."""
    workers = list(pool._processes.values())  # shutdown forgets them
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()


def obey_the_parent() -> None:
    """Leave Ctrl-C, which reaches the whole group, to the parent; clean up when it stops us or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    """Outlive the parent by no more than it takes to clean up."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    while True:
        # The pool takes the first for the end of a task only, and waits for another.
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
