"""A counter of requests on the terminal, for runs that take longer than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator

from kvsim.core import Request

PATIENCE = 1.0
"""Seconds before anything is shown."""
STRIDE = 256
"""Requests between two looks at the clock."""


def watched(requests: Iterable[Request], total: int | None = None) -> Iterable[Request]:
    """The same requests; how many have passed is shown on stderr if that is a terminal."""
    return _shown(requests, total) if sys.stderr.isatty() else requests


def _shown(requests: Iterable[Request], total: int | None) -> Iterator[Request]:
    began = time.monotonic()
    source = iter(requests)
    for count, request in enumerate(source):
        yield request
        if count % STRIDE == 0 and time.monotonic() - began > PATIENCE:
            yield from _counted(source, count + 1, total)
            return


def _counted(source: Iterator[Request], seen: int, total: int | None) -> Iterator[Request]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("replaying"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} requests"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("requests", total=total, completed=seen)
        for count, request in enumerate(source, seen + 1):
            yield request
            if count % STRIDE == 0:
                progress.update(task, completed=count)
