"""What a report says, apart from how it looks: the seam between its subjects and its renderers.

Everything here is plain data, so that a page, a text, a printed sheet and a spreadsheet show the same
numbers, and none of them can compute one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kvsim.reporting.charts import Chart
from kvsim.reporting.forms import Form

Cell = str | int | float | None
"""A value as it is; None: there is none. Its column says how it is shown."""
Tone = Literal["good", "bad", "open"]


class Column(NamedTuple):
    """How the values below a title are shown."""

    title: str
    form: Form = "text"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of values."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    best: int | None = None
    """Row that is recommended."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Sentences."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """Short statements, one below the other."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """Something to type in."""

    text: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with what there is to see on it."""

    name: str
    """Names its file, where it gets one: letters, digits and ``_``."""
    caption: str
    chart: Chart


Block = Table | Paragraph | Bullets | Code | Figure


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: tuple[Block, ...]


class Point(NamedTuple):
    """One of the three things that an executive asks: the answer, its cost, its risk."""

    label: str
    text: str


class Tile(NamedTuple):
    """A number to remember."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The first screen."""

    headline: str
    tone: Tone
    """Whether the objective is met; ``open`` where there is none."""
    points: tuple[Point, ...]
    tiles: tuple[Tile, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A report about one thing: a run, some runs, a sweep or a plan."""

    title: str
    facts: tuple[str, ...]
    """Small print below the title."""
    summary: Summary
    sections: tuple[Section, ...]


def section(title: str, *blocks: Block | None) -> Section | None:
    """A section of those blocks that there are; None if there are none."""
    present = tuple(block for block in blocks if block is not None)
    return Section(title, present) if present else None


def bullets(items: Sequence[str]) -> Bullets | None:
    """Statements, if there are any."""
    return Bullets(tuple(items)) if items else None


def sentences(items: Iterable[str]) -> Bullets | None:
    """Statements that begin as sentences do, each once."""
    return bullets(
        list(dict.fromkeys(f"{item[:1].upper()}{item[1:].rstrip('.')}." for item in items))
    )


def sections(*found: Section | None) -> tuple[Section, ...]:
    """Those that there are."""
    return tuple(one for one in found if one is not None)


def overview(documents: Sequence[Document]) -> Document:
    """What several documents say, side by side."""
    columns = tuple(map(Column, ("report", "answer", *_labels(documents))))
    rows = tuple((one.title, one.summary.headline, *_texts(one, documents)) for one in documents)
    tones = {one.summary.tone for one in documents}
    return Document(
        title=f"{len(documents)} reports",
        facts=(),
        summary=Summary(
            headline=" · ".join(one.summary.headline for one in documents),
            tone=tones.pop() if len(tones) == 1 else "open",
            points=(),
        ),
        sections=(Section("Side by side", (Table(columns, rows),)),),
    )


def _labels(documents: Sequence[Document]) -> list[str]:
    labels = (point.label for one in documents for point in one.summary.points)
    return [label for label in dict.fromkeys(labels) if label != "Answer"]


def _texts(document: Document, documents: Sequence[Document]) -> list[str | None]:
    texts = {point.label: point.text for point in document.summary.points}
    return [texts.get(label) for label in _labels(documents)]
