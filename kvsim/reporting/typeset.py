"""Text and tables on paper: how wide they are, and where their lines break. Lengths are inches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from kvsim.reporting.document import Table
from kvsim.reporting.forms import shown

INK, QUIET, BEST = "#333333", "#8a8a8a", "#e8f3ee"
PADDING = 0.05
"""Beside the text of a cell."""
SIZES = (8.5, 8.0, 7.5, 7.0, 6.5, 6.0, 5.5)
"""Points in which a table may be set, from the one that is read best."""
ENOUGH = 2.6
"""A column of text wants no more than this."""


class Type(NamedTuple):
    """How a text is set."""

    size: float = 9.0
    """Points."""
    weight: str = "normal"
    colour: str = INK
    family: str = "sans-serif"

    @property
    def leading(self) -> float:
        """From one line to the next."""
        return self.size * 1.35 / 72


@cache
def width(text: str, set_in: Type) -> float:
    """Inches that a text takes in one line."""
    font = FontProperties(family=set_in.family, weight=set_in.weight, size=set_in.size)
    inches, _, _ = text_to_path.get_text_width_height_descent(text, font, False)
    return float(inches) / 72


def wrapped(text: str, set_in: Type, room: float) -> list[str]:
    """A text in lines that fit; what is longer than a line in itself is cut."""
    lines, line = [], ""
    for word in _pieces(text, set_in, room):
        longer = f"{line} {word}" if line else word
        if line and width(longer, set_in) > room:
            lines.append(line)
            line = word
        else:
            line = longer
    return [*lines, line]


def _pieces(text: str, set_in: Type, room: float) -> Iterator[str]:
    for word in text.split():
        while width(word, set_in) > room and len(word) > 1:
            fits = max(1, int(len(word) * room / width(word, set_in)) - 1)
            yield word[:fits]
            word = word[fits:]
        yield word


class Span(NamedTuple):
    """A column on paper."""

    left: float
    right: float
    numbers: bool


class Row(NamedTuple):
    """A row of a table, its cells broken into lines."""

    cells: list[list[str]]
    set_in: Type
    ground: str | None

    @property
    def height(self) -> float:
        """Of its highest cell, with the line below."""
        return max(map(len, self.cells)) * self.set_in.leading + 0.08


class Room(NamedTuple):
    """What a column needs, and what it would like."""

    least: float
    wanted: float


def typeset(table: Table, left: float, room: float) -> tuple[list[Span], list[Row]]:
    """Columns and rows of a table in the largest size in which no word is broken."""
    texts = [[column.title for column in table.columns]]
    for row in table.rows:
        texts.append([shown(v, c.form) for v, c in zip(row, table.columns, strict=True)])
    fits = (s for s in SIZES if sum(one.least for one in _rooms(table, texts, s)) <= room)
    size = next(fits, SIZES[-1])
    spans = list(_spans(table, _shared(_rooms(table, texts, size), room), left))
    return spans, list(_rows(table, texts, spans, size))


def _rooms(table: Table, texts: Sequence[Sequence[str]], size: float) -> list[Room]:
    """Numbers are not broken; titles and texts are, between their words."""
    bold = Type(size, "bold")
    rooms = []
    for place, column in enumerate(table.columns):
        cells = [row[place] for row in texts[1:]]
        words = column.title.split() + ([] if column.form != "text" else " ".join(cells).split())
        least = max((width(word, bold) for word in words), default=0.3)
        whole = max((width(cell, bold) for cell in cells), default=0.0)
        if column.form != "text":
            least = max(least, whole)
        wanted = max(least, min(whole, ENOUGH))
        rooms.append(Room(least + 2 * PADDING, wanted + 2 * PADDING))
    return rooms


def _shared(rooms: Sequence[Room], room: float) -> list[float]:
    """Everybody gets the least; what is left goes where it is wanted, then to all alike."""
    least, wanted = (sum(one[i] for one in rooms) for i in (0, 1))
    if least > room:
        return [one.least * room / least for one in rooms]
    share = min(1.0, (room - least) / (wanted - least)) if wanted > least else 0.0
    spare = max(0.0, room - wanted) / len(rooms)
    return [one.least + share * (one.wanted - one.least) + spare for one in rooms]


def _spans(table: Table, widths: Sequence[float], left: float) -> Iterator[Span]:
    for column, wide in zip(table.columns, widths, strict=True):
        yield Span(left, left + wide, column.form != "text")
        left += wide


def _rows(
    table: Table, texts: Sequence[Sequence[str]], spans: Sequence[Span], size: float
) -> Iterator[Row]:
    """The titles and the rows of a table, broken into lines."""
    for place, cells in enumerate(texts):
        best = place > 0 and place - 1 == table.best
        set_in = Type(size, "bold") if best else Type(size) if place else Type(size, "bold", QUIET)
        lines = [
            wrapped(text, set_in, span.right - span.left - 2 * PADDING + 0.01)
            for text, span in zip(cells, spans, strict=True)
        ]
        yield Row(lines, set_in, BEST if best else None)
