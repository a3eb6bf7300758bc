"""What people and programs are shown of a run."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from kvsim.analysis.summary import Value
from kvsim.export import csv_of, json_of
from kvsim.report import WIDTH, print_comparison, print_summary
from kvsim.report.forms import number
from kvsim.runs import RunResult
from tests.recorded import record, served

RUN = record(
    *(served(row, 5.0 * row, queue=1.0 * (row == 7), cached=40) for row in range(20)),
    rejected=2,
    replicas=2,
    slos={"ttft": 1.0},
    name="paged",
)


def printed(*results: RunResult, encoding: str = "utf-8", width: int = WIDTH) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=stream, width=width)
    if len(results) == 1:
        print_summary(results[0], console)
    else:
        print_comparison(results, console)
    stream.seek(0)
    return stream.read()


def changed(**values: Value) -> RunResult:
    return replace(RUN, summary={**RUN.summary, **values})


def test_the_summary_fits_its_width_without_colour_or_blank_edges() -> None:
    lines = printed(RUN, width=300).splitlines()
    assert max(len(line) for line in lines) <= WIDTH
    assert "\x1b" not in "".join(lines)
    assert len(lines) < 30


def test_the_summary_says_what_was_run_and_where_its_times_come_from() -> None:
    title = printed(RUN).splitlines()[0]
    assert title == "paged  llama-3-8b, h200, paged, 2 replicas, analytic times"


def test_the_summary_holds_the_numbers_of_the_run() -> None:
    text = printed(RUN)
    for shown in ("20 completed", "2 rejected", "40.0% of 2.0 k prompt tokens", "goodput"):
        assert shown in text
    row = next(line for line in text.splitlines() if line.startswith("TTFT"))
    assert row.split() == ["TTFT", "550.00", "500.00", "500.00", "550.00", "1,310.00"]


def test_the_bar_shows_the_parts_of_the_pool_in_proportion() -> None:
    pool = {"used": 600.0, "reserved": 100.0, "cached": 299.0, "free": 1.0}
    memory = {"internal_fragmentation": 0.0, "external_fragmentation": 0.0, **pool}
    lines = printed(changed(kv_memory=memory)).splitlines()
    bar = next(line for line in lines if "██" in line).strip()
    assert [bar.count(glyph) for glyph in "█▓▒░▪·"] == [36, 0, 6, 0, 18, 0]


def test_a_console_without_unicode_gets_ascii() -> None:
    text = printed(RUN, encoding="ascii")
    assert "oooo" in text
    assert text.isascii()


def test_an_overloaded_run_says_so_beside_its_verdict() -> None:
    assert "OVERLOADED" not in printed(RUN)
    text = printed(changed(overloaded=True, verdict="KV-bound", verdict_evidence="no room"))
    assert "KV-bound, OVERLOADED" in text
    assert "no room" in text


def test_what_does_not_exist_is_shown_as_a_dash() -> None:
    row = next(
        line for line in printed(record(served(0, 0.0, output=1))).splitlines() if "TPOT" in line
    )
    assert row.split() == ["TPOT", *["-"] * 5]
    assert printed(replace(RUN, summary={}))


def test_a_comparison_has_a_column_for_each_run_and_marks_the_best() -> None:
    other = replace(changed(mean_ttft_ms=1.0, request_throughput=0.01), name="contiguous")
    lines = printed(RUN, other).splitlines()
    assert lines[0].split() == ["paged", "contiguous"]
    rows = {line[:24].strip(): line[24:] for line in lines[1:-1]}
    assert rows["TTFT mean, ms"].split() == ["550.00", "1.00", "*"]
    assert rows["requests/s"].split()[1] == "*"
    assert "*" not in rows["TTFT p50, ms"]
    assert "*" not in rows["KV usage mean"]


@pytest.mark.parametrize("goodput", [None, 2.0])
def test_what_no_run_has_or_all_have_alike_is_nobodys_best(goodput: float | None) -> None:
    text = printed(changed(request_goodput=goodput), changed(request_goodput=goodput))
    row = next(line for line in text.splitlines() if line.startswith("goodput"))
    assert "*" not in row


def test_numbers_have_four_digits_and_thousands_their_comma() -> None:
    known = {2.69999: "2.700", 552.8235: "552.8", 2713.4: "2,713", 999.96: "1,000", 0.0: "0"}
    for value, shown in known.items():
        assert number(value) == shown


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    runs = [replace(RUN, path=tmp_path / day / "paged") for day in ("monday", "tuesday")]
    assert list(json.loads(json_of(runs))) == ["paged", "tuesday/paged"]
    assert list(json.loads(json_of([RUN, RUN, RUN]))) == ["paged", "paged (2)", "paged (3)"]


def test_json_of_one_run_is_its_summary() -> None:
    assert json.loads(json_of([RUN])) == RUN.summary


def test_csv_has_a_row_for_each_run_and_a_column_for_each_part_of_the_pool() -> None:
    other = replace(changed(completed=19), name="other")
    rows = list(csv.DictReader(io.StringIO(csv_of([RUN, other]))))
    assert [(row["run"], row["completed"]) for row in rows] == [("paged", "20"), ("other", "19")]
    memory = RUN.summary["kv_memory"]
    assert isinstance(memory, dict)
    assert float(rows[0]["kv_memory.cached"]) == pytest.approx(memory["cached"])
    assert rows[0]["overloaded"] == "False"
