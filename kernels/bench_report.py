"""The benchmark's JSON as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def markdown(report: dict[str, Any]) -> str:
    """A table per kind of row: time, rate, share of the bound, and the ratio to the reference."""
    ceilings = report["ceilings"]
    kinds = list(dict.fromkeys(row["kind"] for row in report["rows"]))
    parts = ["# Kernels on the GPU", facts(report)]
    for kind in kinds:
        rows = [row for row in report["rows"] if row["kind"] == kind]
        parts.append(f"## {kind.capitalize()}\n\n" + table(rows, ceilings))
    return "\n\n".join(parts) + "\n"


def facts(report: dict[str, Any]) -> str:
    """Provenance and ceilings as a list, and how to read the tables."""
    copy, read, bf16 = (report["ceilings"][name] / 1e12 for name in ("copy", "read", "bf16"))
    lines = [f"- {name}: {value}" for name, value in report["provenance"].items()]
    lines.append(
        f"- measured ceilings: copy {copy:.2f} TB/s, read {read:.2f} TB/s, bf16 product {bf16:.0f} TFLOP/s"
    )
    return "\n".join(lines) + (
        "\n\nTimes in microseconds. *chained*: per launch in one graph of many. *bound*: the larger of"
        " bytes over the copy ceiling and FLOP over the bf16 ceiling, as a share of the time taken"
        " (pure reading can pass the copy ceiling). *ratio*: time over the reference's time; below 1"
        " is faster."
    )


def table(rows: list[dict[str, Any]], ceilings: dict[str, float]) -> str:
    """One row a shape."""
    names = list(rows[0]["shape"])
    head = [
        *names,
        "median",
        "p10-p90",
        "chained",
        "TB/s",
        "TFLOP/s",
        "bound",
        "reference",
        "ratio",
        "error",
    ]
    body = [[str(row["shape"][name]) for name in names] + figures(row, ceilings) for row in rows]
    return "\n".join(line(cells) for cells in [head, ["---"] * len(head), *body])


def figures(row: dict[str, Any], ceilings: dict[str, float]) -> list[str]:
    """The measured columns of a row."""
    seconds, reference = row["median"] / 1e6, row["reference"]
    bound = max(row["bytes"] / ceilings["copy"], row["flops"] / ceilings["bf16"])
    return [
        f"{row['median']:.1f}",
        f"{row['p10']:.1f}-{row['p90']:.1f}",
        f"{row['chained']:.1f}" if row["chained"] else "",
        f"{row['bytes'] / seconds / 1e12:.2f}",
        f"{row['flops'] / seconds / 1e12:.0f}" if row["flops"] else "",
        f"{bound / seconds:.0%}",
        f"{reference:.1f}" if reference else "",
        f"{row['median'] / reference:.3f}" if reference else "",
        f"{row['error']:.1e}" if row["error"] is not None else "",
    ]


def line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
