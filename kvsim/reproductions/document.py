"""Findings as text, JSON and a page with its figure."""

from __future__ import annotations

from pathlib import Path

from kvsim.files import whole_file, written
from kvsim.reproductions.findings import Findings, Published, Reproduction, Row

HEADER = ("quantity", "published", "reproduced", "gap")


def cells(row: Row) -> tuple[str, str, str, str]:
    """A row as it is shown; a gap in percent is in points."""
    unit = row.published.unit if row.published else row.unit
    gap = "-" if row.gap is None else number(row.gap, "points" if unit == "%" else unit, sign=True)
    if row.gap == 0 and row.published and row.published.low < row.published.high:
        gap = "within"
    mine = "not reproduced" if row.reproduced is None else number(row.reproduced, unit)
    return row.quantity, printed(row.published), mine, gap


def printed(figure: Published | None) -> str:
    """A published value or range."""
    if figure is None:
        return "-"
    if figure.low == figure.high:
        return number(figure.low, figure.unit)
    low = number(figure.low, figure.unit).removesuffix(figure.unit).rstrip()
    return f"{low}-{number(figure.high, figure.unit)}"


def number(value: float, unit: str, *, sign: bool = False) -> str:
    """A number with its unit, as short as its size allows."""
    whole = abs(value) >= 1000 or unit == ""
    digits = f"{value:+z,.10g}" if sign else f"{value:,.10g}"
    if not (whole and value == round(value)):
        places = 2 if unit == "x" else 1
        digits = f"{value:+z,.{places}f}" if sign else f"{value:,.{places}f}"
    return f"{digits} {unit}".strip()


def as_dict(name: str, reproduction: Reproduction, findings: Findings) -> dict[str, object]:
    """One JSON object: every row with its published range, value and gap."""
    return {
        "name": name,
        "title": reproduction.title,
        "source": reproduction.source,
        "assumptions": list(findings.assumptions),
        "rows": [
            {
                "quantity": row.quantity,
                "unit": row.published.unit if row.published else row.unit,
                "published": [row.published.low, row.published.high] if row.published else None,
                "confidence": row.published.confidence if row.published else None,
                "reproduced": row.reproduced,
                "gap": row.gap,
            }
            for row in findings.rows
        ],
    }


def markdown(name: str, reproduction: Reproduction, findings: Findings, command: str) -> str:
    """The page of one reproduction."""
    lines = [f"# {reproduction.title}", "", f"Published: {reproduction.source}.", ""]
    lines += [f"| {' | '.join(HEADER)} |", "| --- | ---: | ---: | ---: |"]
    lines += [f"| {' | '.join(cells(row))} |" for row in findings.rows]
    lines += ["", f"![{reproduction.title}]({name}.png)", "", "Assumptions:", ""]
    lines += [f"- {assumption}" for assumption in findings.assumptions]
    sources = {row.published.confidence for row in findings.rows if row.published}
    lines += ["", f"How the published figures are known: {'; '.join(sorted(sources))}."]
    return "\n".join([*lines, "", f"Made by `{command}`.", ""])


def write(folder: Path, name: str, page: str, figure: bytes) -> None:
    """Put a page and its figure into a folder, which is made if need be."""
    with written(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for ending, content in ((".md", page.encode()), (".png", figure)):
        with whole_file(folder / f"{name}{ending}") as file:
            file.write(content)
