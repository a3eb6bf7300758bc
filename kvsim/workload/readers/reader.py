"""The shape of a reader: the constructor is its configuration, iterating it reads the trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Protocol

from kvsim.core import Request
from kvsim.workload.head import Head
from kvsim.workload.ledger import Ledger
from kvsim.workload.source import Source


class Reader(Protocol):
    """Streams the requests of one trace in file order, their rows counted from 0.

    What a user may set is keyword-only in the constructor. A row that cannot be used goes to the
    ledger, which refuses or counts it.
    """

    summary: ClassVar[str]
    """One line about the format."""
    timed: ClassVar[bool]
    """Whether its rows say when they arrive; otherwise all arrive at 0."""

    def __init__(self, source: Source, ledger: Ledger) -> None: ...

    @staticmethod
    def score(head: Head) -> int:
        """How many marks of the format the head shows; fewer than 2 do not count."""
        ...

    def __iter__(self) -> Iterator[Request]: ...
