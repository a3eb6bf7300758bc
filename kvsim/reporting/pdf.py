"""Documents on paper: A4 pages that are filled from top to bottom, drawn by matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure as Sheet
from matplotlib.patches import Rectangle
from matplotlib.transforms import Bbox

from kvsim.reporting import figures
from kvsim.reporting.document import Block, Bullets, Code, Document, Figure, Paragraph, Table
from kvsim.reporting.typeset import PADDING, QUIET, Row, Span, Type, typeset, wrapped

PAPER = (8.27, 11.69)
"""A4, inches, as all lengths here."""
LEFT, TOP, BOTTOM = 0.75, 0.75, 0.8
WIDE = PAPER[0] - 2 * LEFT
SOFT, LINE = "#f5f7f9", "#dfe4ea"
TONES = {"good": "#00795a", "bad": "#b54708", "open": "#0072b2"}
GAP = 0.1
AFTER_HEADING = 0.7
"""A heading, with the gaps around it."""
TOGETHER = 3.0
"""A table up to this height is not broken over two pages."""


BODY = Type()
TITLE, HEADLINE, HEADING = Type(16, "bold"), Type(12.5, "bold"), Type(11.5, "bold")
SMALL, LABEL = Type(7.8, colour=QUIET), Type(9.0, "bold")
TYPED = Type(7.6, family="monospace")


class Press:
    """Pages, the last of which is being filled."""

    def __init__(self, book: PdfPages) -> None:
        self._book = book
        self._number = 0
        self._sheet: Sheet | None = None
        self._y = 0.0

    def turn(self) -> None:
        """Begin a new page."""
        self.close()
        self._number += 1
        self._sheet = Sheet(figsize=PAPER)
        self._y = PAPER[1] - TOP
        self._put(str(self._number), PAPER[0] / 2, BOTTOM / 2, SMALL, "center")

    def close(self) -> None:
        """Finish the last page."""
        if self._sheet is not None:
            self._book.savefig(self._sheet)  # type: ignore[no-untyped-call]
        self._sheet = None

    def need(self, height: float) -> None:
        """Turn the page unless so much of it is left."""
        if self._sheet is None or self._y - height < BOTTOM:
            self.turn()

    def skip(self, height: float) -> None:
        """Leave room."""
        self._y -= height

    def text(self, text: str, set_in: Type = BODY, *, indent: float = 0.0, head: str = "") -> None:
        """Lines of a text; ``head`` stands in the indentation of the first."""
        for place, line in enumerate(wrapped(text, set_in, WIDE - indent)):
            self.need(set_in.leading)
            if head and not place:
                self._put(head, LEFT, self._y, LABEL if len(head) > 1 else set_in)
            self._put(line, LEFT + indent, self._y, set_in)
            self.skip(set_in.leading)

    def box(self, lines: Sequence[str], set_in: Type, edge: str | None) -> None:
        """Lines on a soft ground, with a coloured edge if there is one."""
        height = len(lines) * set_in.leading + 2 * GAP
        self.need(height)
        self._fill(LEFT, self._y - height, WIDE, height, SOFT)
        if edge:
            self._fill(LEFT, self._y - height, 0.06, height, edge)
        self.skip(GAP)
        for line in lines:
            self._put(line, LEFT + 0.15, self._y, set_in)
            self.skip(set_in.leading)
        self.skip(GAP)

    def rule(self) -> None:
        """A thin line."""
        self._fill(LEFT, self._y, WIDE, 0.008, LINE)

    def row(self, row: Row, spans: Sequence[Span]) -> None:
        """A row of a table."""
        self.need(row.height)
        if row.ground:
            self._fill(LEFT, self._y - row.height + 0.05, WIDE, row.height, row.ground)
        for lines, span in zip(row.cells, spans, strict=True):
            for place, line in enumerate(lines):
                y = self._y - place * row.set_in.leading
                x = span.right - PADDING if span.numbers else span.left + PADDING
                self._put(line, x, y, row.set_in, "right" if span.numbers else "left")
        self.skip(row.height - 0.03)
        self.rule()
        self.skip(0.03)

    def figure(self, figure: Figure) -> None:
        """A chart as wide as the page, and its caption."""
        height = on_paper(figure)
        caption = wrapped(figure.caption, SMALL, WIDE)
        self.need(height + len(caption) * SMALL.leading + 2 * GAP)
        assert self._sheet is not None
        bottom = self._y - height
        place = (LEFT / PAPER[0], bottom / PAPER[1], WIDE / PAPER[0], height / PAPER[1])
        with mpl.rc_context(figures.STYLE | {"font.size": 8.0, "legend.fontsize": 7.5}):
            figures.place(self._sheet, figure.chart, Bbox.from_bounds(*place))
        self.skip(height + GAP)
        for line in caption:
            self._put(line, LEFT, self._y, SMALL)
            self.skip(SMALL.leading)
        self.skip(GAP)

    def _put(self, text: str, x: float, y: float, set_in: Type, align: str = "left") -> None:
        assert self._sheet is not None
        self._sheet.text(
            x / PAPER[0], y / PAPER[1], text, ha=align, va="top", fontsize=set_in.size,
            fontweight=set_in.weight, color=set_in.colour, family=set_in.family, parse_math=False,
        )  # fmt: skip

    def _fill(self, x: float, y: float, wide: float, high: float, colour: str) -> None:
        assert self._sheet is not None
        place, size = (x / PAPER[0], y / PAPER[1]), (wide / PAPER[0], high / PAPER[1])
        patch = Rectangle(place, *size, facecolor=colour, edgecolor="none", zorder=-1)
        patch.set_transform(self._sheet.transFigure)
        self._sheet.patches.append(patch)


def pdf(documents: Sequence[Document]) -> bytes:
    """All documents, each on pages of its own."""
    buffer = io.BytesIO()
    style: Any = {"pdf.fonttype": 42, "text.parse_math": False}
    with (
        mpl.rc_context(style),
        figures.any_script(),
        PdfPages(buffer, metadata={"CreationDate": None}) as book,
    ):
        press = Press(book)
        for document in documents:
            press.turn()
            print_document(press, document)
        press.close()
    return buffer.getvalue()


def print_document(press: Press, document: Document) -> None:
    """The first screen, then the sections."""
    press.text(document.title, TITLE)
    press.text(" · ".join(document.facts), SMALL)
    press.skip(GAP)
    summary = document.summary
    press.box(wrapped(summary.headline, HEADLINE, WIDE - 0.3), HEADLINE, TONES[summary.tone])
    press.skip(GAP)
    for tile in summary.tiles:
        press.text(tile.label, indent=1.2, head=tile.value)
    press.skip(GAP)
    for point in summary.points:
        press.text(point.text, indent=0.8, head=point.label)
        press.skip(GAP / 2)
    for warning in summary.warnings:
        press.text(f"Warning: {warning}.", BODY._replace(colour=TONES["bad"]))
    for section in document.sections:
        press.need(AFTER_HEADING + least(section.blocks[0]))
        press.skip(2 * GAP)
        press.text(section.title, HEADING)
        press.rule()
        press.skip(GAP)
        for block in section.blocks:
            print_block(press, block)


def least(block: Block) -> float:
    """What of a block must stand on the page of its heading."""
    if isinstance(block, Table):
        return min(sum(row.height for row in typeset(block, LEFT, WIDE)[1]), TOGETHER)
    return on_paper(block) if isinstance(block, Figure) else 2 * BODY.leading


def on_paper(figure: Figure) -> float:
    """The height of a chart; it is as wide as the page."""
    return figure.chart.height * WIDE / figures.WIDTH * 1.1


def print_block(press: Press, block: Block) -> None:
    """Any block."""
    if isinstance(block, Table):
        print_table(press, block)
    elif isinstance(block, Figure):
        press.figure(block)
    elif isinstance(block, Code):
        lines = [
            part for line in block.text.splitlines() for part in wrapped(line, TYPED, WIDE - 0.3)
        ]
        press.box(lines, TYPED, None)
    elif isinstance(block, Bullets):
        for item in block.items:
            press.text(item, indent=0.15, head="•")
    elif isinstance(block, Paragraph):
        press.text(block.text)
    press.skip(GAP)


def print_table(press: Press, table: Table) -> None:
    """A table over the whole width; a short one stays on its page."""
    columns, rows = typeset(table, LEFT, WIDE)
    press.need(min(sum(row.height for row in rows), TOGETHER))
    for row in rows:
        press.row(row, columns)
