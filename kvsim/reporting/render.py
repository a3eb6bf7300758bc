"""Writes documents: a page, a text with its figures, sheets of paper, or a spreadsheet's rows.

The suffix of the file chooses. Whatever a name contains, it stays text: pages are escaped, cells of a
spreadsheet compute nothing, and nothing points out of the file.
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvsim.errors import ConfigError
from kvsim.export import inert
from kvsim.files import require_file, require_folder, whole_file, written
from kvsim.reporting.document import Block, Document, Figure, Table, overview
from kvsim.reporting.forms import shown
from kvsim.reporting.pages import environment

if TYPE_CHECKING:
    from jinja2 import Template

Rendered = tuple[bytes, dict[str, bytes]]
"""The file, and files beside it by their paths."""


def check_targets(
    flag: str,
    paths: Sequence[Path],
    suffixes: Iterable[str] | None = None,
    *,
    read: Sequence[str | Path] = (),
) -> None:
    """ConfigError, before any work, for a file that could not be written or is also ``read``."""
    known = tuple(suffixes or RENDERERS)
    for path in paths:
        if path.suffix not in known:
            raise ConfigError(f"{flag} {path}: must end in {', '.join(known)}")
        require_file(path, *read)
        if path.suffix == ".md":
            require_folder(figures_of(path), ".svg")


def write_report(documents: Sequence[Document], path: Path) -> None:
    """Write documents into one file, with an overview before them if there are several."""
    shown_all = [overview(documents), *documents] if len(documents) > 1 else list(documents)
    content, beside = RENDERERS[path.suffix](shown_all, path)
    for name, figure in beside.items():
        place = path.parent / name
        with written(place):
            place.parent.mkdir(exist_ok=True)
        with whole_file(place) as file:
            file.write(figure)
    with whole_file(path) as file:
        file.write(content)


def html(documents: Sequence[Document], path: Path) -> Rendered:
    """One self-contained page."""

    def place(figure: Figure) -> str:
        from kvsim.reporting.figures import svg

        return "data:image/svg+xml;base64," + base64.b64encode(svg(figure.chart)).decode()

    page = template("report.html.j2")
    return page.render(documents=documents, place=place).encode(), {}


def figures_of(path: Path) -> Path:
    """The folder of a text's figures."""
    return path.with_name(f"{path.stem}_figures")


def markdown(documents: Sequence[Document], path: Path) -> Rendered:
    """Text that refers to figures in a folder beside it."""
    from kvsim.reporting.figures import svg

    figures: dict[str, bytes] = {}
    folder = figures_of(path).name

    def place(figure: Figure) -> str:
        name = f"{folder}/{figure.name}{len(figures) or ''}.svg"
        if f"{folder}/{figure.name}.svg" not in figures:
            name = f"{folder}/{figure.name}.svg"
        figures[name] = svg(figure.chart)
        return name

    text = template("report.md.j2").render(documents=documents, place=place)
    return text.encode(), figures


def paper(documents: Sequence[Document], path: Path) -> Rendered:
    """Pages to print."""
    from kvsim.reporting.pdf import pdf

    return pdf(documents), {}


def sheet(documents: Sequence[Document], path: Path) -> Rendered:
    """The summary and every table as rows, values as they are."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    for document in documents:
        for row in rows(document):
            writer.writerow([inert(cell) for cell in row])
    return text.getvalue().encode(), {}


def rows(document: Document) -> Iterator[tuple[object, ...]]:
    """A document as rows; an empty one between its parts."""
    summary = document.summary
    yield (document.title,)
    yield ("headline", summary.headline)
    yield from ((point.label, point.text) for point in summary.points)
    yield from (("warning", warning) for warning in summary.warnings)
    for section in document.sections:
        yield ()
        yield (section.title,)
        for block in section.blocks:
            yield from _rows(block)
    yield ()


def _rows(block: Block) -> Iterator[tuple[object, ...]]:
    if isinstance(block, Table):
        yield tuple(column.title for column in block.columns)
        yield from block.rows
    elif not isinstance(block, Figure):
        items = block.items if hasattr(block, "items") else (block.text,)
        yield from ((item,) for item in items)


def template(name: str) -> Template:
    """A page or a text, with what it calls upon."""

    def kind(block: Block) -> str:
        return type(block).__name__

    return environment("kvsim.reporting", shown=shown, cell=cell, kind=kind).get_template(name)


def cell(text: object) -> str:
    """Text that cannot end a cell of a Markdown table, nor be HTML."""
    plain = " ".join(str(text).split())
    for special, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("`", "'")):
        plain = plain.replace(special, safe)
    return plain


RENDERERS: dict[str, Callable[[Sequence[Document], Path], Rendered]] = {
    ".html": html,
    ".md": markdown,
    ".pdf": paper,
    ".csv": sheet,
}
