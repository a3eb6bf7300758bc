"""What a pass over a trace left out, and what it found odd."""

from __future__ import annotations

from collections import Counter
from typing import Literal, get_args

from kvsim.errors import ConfigError, TraceError

OnBadRow = Literal["error", "skip"]


class BadRow(Exception):  # noqa: N818 - an outcome of one row; the ledger decides whether it is an error
    """One row of a trace cannot be used; the text says why and what would be accepted."""


class Ledger:
    """Counts the rows that were skipped and the quirks that were met.

    Raises a ``TraceError`` at the first bad row, unless bad rows are to be skipped. ``line`` is where
    the reader is, for complaints about a row by those who only see its request.
    """

    line: int = 0

    def __init__(self, on_bad_row: OnBadRow) -> None:
        if on_bad_row not in get_args(OnBadRow):
            raise ConfigError(f"--on-bad-row is {on_bad_row!r}; accepted: error, skip")
        self._skips = on_bad_row == "skip"
        self.skipped = 0
        self.first_bad: str | None = None
        self._facts: list[str] = []
        self._odd: Counter[str] = Counter()

    def bad_row(self, place: str, why: BadRow) -> None:
        """Count a row that cannot be used, or refuse the trace because of it."""
        message = f"{place}: {why}"
        if not self._skips:
            raise TraceError(message)
        self.skipped += 1
        if self.first_bad is None:
            self.first_bad = message

    def note(self, quirk: str) -> None:
        """Count one more occurrence of a quirk."""
        self._odd[quirk] += 1

    def remark(self, fact: str) -> None:
        """Keep a fact about the whole trace."""
        self._facts.append(fact)

    def quirks(self) -> list[str]:
        """One line for each kind of oddity, in the order in which they were first met."""
        lines = self._facts + [f"{quirk} ({count:,}×)" for quirk, count in self._odd.items()]
        if self.skipped:
            lines.append(f"{self.skipped:,} bad rows skipped; the first: {self.first_bad}")
        return lines
