"""Row by row through a text file: every reader of lines is one function of one row."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator

from kvsim.core import Request
from kvsim.errors import TraceError, shown
from kvsim.workload.fields import MAX_TOKENS, SECONDS, TOKENS
from kvsim.workload.ledger import BadRow, Ledger
from kvsim.workload.source import Source

Line = Callable[[int, bytes], Request | None]
"""The request on a line, given its row; None for a row that is rightly left out."""
Cells = list[str]


def requests_of_lines(source: Source, ledger: Ledger, request_of: Line) -> Iterator[Request]:
    """The requests on the lines of a file; blank lines are skipped."""
    return _requests(source, ledger, enumerate(source.lines(), 1), request_of)


def _requests(
    source: Source, ledger: Ledger, lines: Iterator[tuple[int, bytes]], request_of: Line
) -> Iterator[Request]:
    row = 0
    for line_number, line in lines:
        if not line or line.isspace():
            continue
        try:
            request = request_of(row, line)
        except BadRow as why:
            ledger.bad_row(f"{source.name}:{line_number}", why)
            continue
        if request is not None:
            row += 1
            ledger.line = line_number
            yield request


class Table:
    """A CSV file whose columns are found by name (case does not matter), never by position."""

    def __init__(self, source: Source, ledger: Ledger, needed: tuple[str, ...]) -> None:
        self._source = source
        self._ledger = ledger
        self._needed = needed
        self.header: Cells = []

    def requests(self, request_of: Callable[[int, Cells], Request | None]) -> Iterator[Request]:
        """The requests; ``request_of`` is given a row and its needed cells, in the order needed."""
        lines = enumerate(self._source.lines(), 1)
        places = self._places(next(lines)[1])
        width = len(self.header)

        def request_of_line(row: int, line: bytes) -> Request | None:
            cells = split(line)
            if len(cells) != width:
                raise BadRow(
                    f"the line has {_fields(len(cells))}; accepted: {width}, as the header"
                )
            return request_of(row, [cells[place] for place in places])

        return _requests(self._source, self._ledger, lines, request_of_line)

    def _places(self, first: bytes) -> list[int]:
        try:
            self.header = [cell.strip() for cell in split(first)]
        except BadRow as why:
            raise TraceError(f"{self._source.name}:1: {why}") from None
        lowered = [cell.lower() for cell in self.header]
        for column in self._needed:
            if column.lower() not in lowered:
                raise TraceError(
                    f"{self._source.name}:1: field {column!r} is missing from the header "
                    f"{shown(','.join(self.header))}; accepted: a column of that name"
                )
        return [lowered.index(column.lower()) for column in self._needed]


def _fields(count: int) -> str:
    return "1 field" if count == 1 else f"{count} fields"


def split(line: bytes) -> Cells:
    """The cells of a line of a CSV file."""
    try:
        text = line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise BadRow(f"the line is {shown(line)}; accepted: UTF-8 text") from None
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text]))
    except csv.Error as why:
        raise BadRow(
            f"the line is {shown(text)}, {why}; accepted: comma-separated values"
        ) from None


def whole(cell: str, field: str, *, least: int = 1) -> int:
    """A number of tokens in a cell."""
    digits = cell.strip()
    if digits.isascii() and digits.isdecimal() and len(digits) <= 10:
        value = int(digits)
        if least <= value <= MAX_TOKENS:
            return value
    accepted = TOKENS if least == 1 else f"a whole number from {least} to {MAX_TOKENS:,}"
    raise BadRow(f"field {field!r} is {_cell(cell)}; accepted: {accepted}")


def moment(cell: str, field: str) -> float:
    """A time in seconds in a cell."""
    try:
        value = float(cell)
    except ValueError:
        value = -1.0
    if value >= 0 and "_" not in cell:
        return value
    raise BadRow(f"field {field!r} is {_cell(cell)}; accepted: {SECONDS}, or a Unix time")


def _cell(cell: str) -> str:
    return shown(cell) if cell.strip() else "empty"
