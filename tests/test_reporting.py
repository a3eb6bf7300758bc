"""Reports: one document of runs, sweeps and plans, in four forms, whatever their names contain."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.cli.app import run
from kvsim.errors import ConfigError
from kvsim.export import inert
from kvsim.planning import Plan, Question, plan
from kvsim.planning.document import document as plan_document
from kvsim.planning.objective import read_objective
from kvsim.planning.prices import Preference
from kvsim.planning.question import Owned, half_width
from kvsim.reporting.alternative import Terms, of_run, ranked
from kvsim.reporting.charts import Axis, Curves, Line, Panels
from kvsim.reporting.document import Document, Figure, Table
from kvsim.reporting.figures import place
from kvsim.reporting.forms import fine_share, shown
from kvsim.reporting.paid import Prices
from kvsim.reporting.places import Places
from kvsim.reporting.plan_data import read_plan
from kvsim.reporting.plans import of_plan
from kvsim.reporting.ranking import front
from kvsim.reporting.render import RENDERERS, cell, html, markdown, sheet, write_report
from kvsim.reporting.runs import of_runs
from kvsim.reporting.saved import run_of, save_plan
from kvsim.reporting.sources import documents
from kvsim.reporting.sweeps import of_sweep
from kvsim.reporting.trust import Load, calibration
from kvsim.runs import RunResult
from kvsim.scenario import Scenario
from kvsim.sweeping.results import load_sweep
from tests.recorded import record, served

TODAY = date(2026, 11, 29)
EVIL = "<script>alert(1)</script>"
TERMS = Terms(Prices(TODAY), ("ttft=1s", "tpot=200ms"))


def make(name: str, *, queue: float = 0.0) -> RunResult:
    """A run of twenty requests that are served within half a second, and of one after ``queue``."""
    return record(
        *(served(row, 5.0 * row, queue=queue * (row == 7)) for row in range(20)), name=name
    )


@pytest.fixture(scope="module")
def explored(root: Path) -> Plan:
    """A small plan with all that a plan can have."""
    trace = str(root / "traces" / "mooncake.jsonl.gz")
    question = Question(
        Scenario(model="llama-3.1-8b", cost_model="roofline", workload={"limit": 60}),
        trace,
        ("h200", "a100-80gb"),
        read_objective(["ttft=2s", "tpot=50ms"], 0.9),
        TODAY,
        tensor_parallel_sizes=(4,),
        token_budgets=(None,),
    )
    return plan(question)


def of(made: Plan) -> Document:
    return of_plan(read_plan(plan_document(made, "kvsim plan x"), "plan"), run_of(made))


def page(*documents: Document) -> str:
    return html(documents, Path("x.html"))[0].decode()


@pytest.fixture(scope="module")
def shown_page(explored: Plan) -> str:
    """The page of the plan."""
    return page(of(explored))


def without_pictures(made: str) -> str:
    return re.sub(r"base64,[^\"]*", "", made)


def titles(document: Document) -> list[str]:
    return [section.title for section in document.sections]


# What a report says.


def test_a_run_is_described_from_its_trace_to_the_command_that_repeats_it() -> None:
    made = of_runs([make("a")], TERMS, "kvsim report a")
    assert titles(made) == [
        "Workload",
        "Latency",
        "Throughput",
        "Utilisation and memory",
        "Cost",
        "Assumptions and calibration",
        "Reproduce",
    ]
    assert [point.label for point in made.summary.points] == ["Answer", "Cost", "Risk"]
    assert made.summary.tone == "good"
    assert "100% of requests within all limits" in made.summary.headline


def test_a_run_that_misses_its_objective_says_so_first_and_without_one_nothing_is_judged() -> None:
    late = [make("late", queue=3.0)]
    assert "misses the objective (95.00%" in of_runs(late, TERMS, "").summary.headline
    assert of_runs(late, TERMS, "").summary.tone == "bad"
    assert of_runs(late, Terms(Prices(TODAY)), "").summary.tone == "open"


def test_of_several_runs_those_that_meet_the_objective_come_first_then_the_cheaper() -> None:
    good, late = make("good"), make("late", queue=3.0)
    dear = replace(
        good, name="dear", manifest={**good.manifest, "scenario": {"gpu": "h200", "replicas": 9}}
    )
    order = ranked([of_run(one, one.name, TERMS) for one in (late, dear, good)])
    assert [one.name for one in order] == ["good", "dear", "late"]
    made = of_runs([late, dear, good], TERMS, "")
    assert made.summary.headline.startswith("good: 1 × H200-SXM-141GB (8 billed) meets")
    assert "2 of 3 meet it" in made.summary.points[0].text


def test_costs_are_those_of_the_price_that_was_chosen() -> None:
    given_price = Prices(TODAY, Preference(gpu_prices=((None, 2.0),)))
    one = of_run(make("a"), "a", Terms(given_price))
    assert one.bill is not None
    assert one.bill.usd_per_month == 2.0 * 730
    owned = of_run(make("a"), "a", Terms(Prices(TODAY, owned=Owned(((None, 8760.0 * 4),)))))
    assert owned.paid is not None
    assert owned.paid.owned is not None
    assert owned.paid.owned.capital == 1.0
    with pytest.raises(ConfigError, match="no weekly price"):
        _ = of_run(make("a"), "a", Terms(Prices(TODAY, Preference(commitment="weekly")))).bill


def test_the_answer_of_a_plan_its_cost_and_its_risk_stand_on_the_first_screen(
    explored: Plan, shown_page: str
) -> None:
    made, best = of(explored), explored.candidates[0]
    assert made.summary.headline == (
        f"{best.fleet.bill.gpus_needed} × {best.market.gpu.name}, ${best.usd_per_month:,.0f} a month"
    )
    text = without_pictures(shown_page)
    first = text.split("<section>")[0]
    for said in ("Asked: 90% of requests", "an hour", "answer", explored.cost_label):
        assert said in first
    assert {
        "Alternatives",
        "Cost breakdown",
        "Workload",
        "Latency",
        "Utilisation and memory",
    } <= set(titles(made))
    assert {"Sensitivity", "Assumptions and calibration", "Reproduce", "Sign-off"} <= set(
        titles(made)
    )
    assert explored.hash in text
    assert explored.exploration is not None
    for effect in explored.exploration.effects:
        if effect.changes and effect.winner == best.market.gpu.name:
            assert f"({effect.gpus} GPUs, ${effect.usd_per_month:,.0f} a month)" in first
    assert "nan" not in text.lower().split()


def test_what_a_month_is_spent_on_is_all_of_it(explored: Plan) -> None:
    [figure] = [
        block
        for section in of(explored).sections
        for block in section.blocks
        if isinstance(block, Figure) and block.name == "costs"
    ]
    spent = [
        sum(values) for values in zip(*(part.values for part in figure.chart.parts), strict=True)
    ]  # type: ignore[union-attr]
    assert spent == pytest.approx([each.usd_per_month for each in explored.candidates])


def test_a_plan_that_finds_nothing_is_a_report_too(explored: Plan) -> None:
    made = of(explored._replace(candidates=(), exploration=None))
    assert made.summary.tone == "bad"
    assert "meets the objective" in page(made)


def test_times_that_were_measured_say_within_what_and_whether_the_run_stays_there() -> None:
    inside = " ".join(calibration("measured (h200)", Load(context=4096, tokens=512)))
    assert "held out" in inside
    assert "stays within" in inside
    beyond = " ".join(calibration("projected from h200", Load(context=10**7, tokens=512)))
    assert "goes beyond in context" in beyond
    assert "not at hand" in " ".join(calibration("measured (gone)", None))


def test_what_was_not_timed_is_known_less_well_and_an_engine_s_host_is_not_missed() -> None:
    narrow = "measured (h200), int4 weights extrapolated"
    labels = ("measured (h200)", narrow, "measured (h200), vllm 0.23")
    plain, narrower, engine = (" ".join(calibration(label, None)) for label in labels)
    assert half_width(narrow) > half_width("measured (h200)")
    assert "no kernel of the type" in narrower
    assert "no kernel of the type" not in plain
    assert "host adds is not in them" in plain
    assert "host adds is not in them" not in engine
    assert all("held out" in text for text in (plain, narrower, engine))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_the_line_of_a_trade_joins_what_no_other_beats(points: list[tuple[int, int]]) -> None:
    line = {points[i] for i in front([(float(x), float(y)) for x, y in points])}

    def beaten(one: tuple[int, int]) -> bool:
        return any(o != one and o[0] >= one[0] and o[1] >= one[1] for o in points)

    assert line == {one for one in points if not beaten(one)}


@given(st.floats(0, 1))
def test_only_all_is_shown_as_100_percent(value: float) -> None:
    assert (fine_share(value) == "100%") == (value == 1)
    assert shown(None, "share") == "–"


# What it looks like.


def test_a_page_is_one_file_that_asks_nothing_of_the_network(shown_page: str) -> None:
    made = without_pictures(shown_page)
    assert shown_page.count("data:image/svg+xml;base64,") >= 7
    assert "http:" not in made
    assert "https:" not in made
    assert "default-src 'none'" in made


@pytest.mark.parametrize("suffix", RENDERERS)
def test_the_same_document_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    whole = of_runs([make("a")], TERMS, "kvsim report a")
    made = [replace(whole, sections=whole.sections[:2])]
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        write_report(made, tmp_path / name / f"report{suffix}")
    one, other = (tmp_path / name / f"report{suffix}" for name in ("one", "other"))
    assert one.read_bytes() == other.read_bytes()
    assert not list(tmp_path.rglob("*.part"))


def test_a_report_is_printed_on_as_many_sheets_as_it_needs(tmp_path: Path) -> None:
    made = of_runs([make(f"run {number}, of a long name") for number in range(9)], TERMS, "")
    for times in (1, 9):
        last = replace(made, sections=made.sections[-2:] * times)
        write_report([last], tmp_path / f"{times}.pdf")
    few, many = (
        len(re.findall(rb"/Type /Page\b", (tmp_path / f"{times}.pdf").read_bytes()))
        for times in (1, 9)
    )
    assert 1 <= few < many


@pytest.mark.parametrize("names", [1, 4, 9])
def test_no_panel_writes_over_another(names: int) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Sheet
    from matplotlib.transforms import Bbox

    lines = tuple(Line(f"run {n} within 2 s", [1, 2], [0.1, 0.9], "blue") for n in range(names))
    panel = Curves(Axis("seconds"), Axis("share of requests", "share"), lines)
    other = replace(panel, x=Axis("milliseconds"))
    sheet, room = Sheet(figsize=(8.27, 11.69)), Bbox.from_extents(0.1, 0.5, 0.9, 0.9)
    place(sheet, Panels((panel, other)), room)
    renderer = FigureCanvasAgg(sheet).get_renderer()
    upper, lower = (
        axes.get_tightbbox(renderer).transformed(sheet.transFigure.inverted())
        for axes in sheet.axes
    )
    assert upper.y0 >= lower.y1
    assert lower.y0 == pytest.approx(room.y0, abs=0.005)
    assert upper.y1 == pytest.approx(room.y1, abs=0.005)


def test_nothing_in_a_name_can_become_markup(explored: Plan, tmp_path: Path) -> None:
    named = explored._replace(traffic=explored.traffic._replace(name=EVIL))
    evil = of_runs([make(EVIL), make("b")], TERMS, f"kvsim report {EVIL}")
    documents = [
        replace(one, sections=one.sections[:1] + one.sections[-2:]) for one in (of(named), evil)
    ]
    made = page(*documents)
    assert "<script" not in made
    assert "&lt;script&gt;" in made
    assert made.count("<article>") == 2
    plain = re.sub(
        r"```sh.*?```", "", markdown(documents, tmp_path / "x.md")[0].decode(), flags=re.S
    )
    assert "<script" not in plain
    write_report(documents[1:], tmp_path / "x.pdf")


def test_a_figure_holds_a_name_as_text() -> None:
    from kvsim.reporting.figures import svg

    made = of_runs([make(EVIL), make("b")], TERMS, "")
    pictures = [svg(b.chart) for s in made.sections for b in s.blocks if isinstance(b, Figure)]
    assert any(b"&lt;script&gt;" in one for one in pictures)
    assert not any(b"<script" in one for one in pictures)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("suffix", [".html", ".pdf"])
def test_a_name_may_be_of_any_script(tmp_path: Path, suffix: str) -> None:
    made = of_runs([make("会话"), make("b")], TERMS, "")
    some = replace(made, sections=tuple(s for s in made.sections if s.title == "Alternatives"))
    write_report([some], tmp_path / f"x{suffix}")


def test_markdown_refers_to_figures_that_are_written_beside_it(
    tmp_path: Path,
) -> None:
    write_report([of_runs([make("a")], TERMS, "")] * 2, tmp_path / "runs.md")
    places = re.findall(r"!\[[^]]*]\(([^)]+)\)", (tmp_path / "runs.md").read_text())
    assert len(places) == len(set(places)) >= 8
    assert all(b"<svg" in (tmp_path / place).read_bytes() for place in places)


def test_a_cell_of_a_markdown_table_stays_one_cell() -> None:
    assert cell("a|b\n`c` <d>") == "a\\|b 'c' &lt;d&gt;"


def test_a_sheet_holds_every_table_with_its_numbers_as_they_are(explored: Plan) -> None:
    rows = list(csv.reader(io.StringIO(sheet([of(explored)], Path("x.csv"))[0].decode())))
    tables = [b for s in of(explored).sections for b in s.blocks if isinstance(b, Table)]
    for table in tables:
        titles = [column.title for column in table.columns]
        start = rows.index(titles)
        found = rows[start + 1][: len(titles)]
        assert found == ["" if value is None else str(value) for value in table.rows[0]]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝"])
def test_no_cell_of_a_sheet_is_a_formula(start: str) -> None:
    name = f"{start}cmd|'/c calc'!A0"
    rows = csv.reader(
        io.StringIO(
            sheet([of_runs([make(name), make("b")], TERMS, "")], Path("x"))[0].decode(), newline=""
        )
    )
    cells = [one for row in rows for one in row]
    assert any(one.startswith(f"'{start}") for one in cells)
    assert not [one for one in cells if one.startswith(start) and inert(one) != one]
    assert inert("-12.5") == "-12.5"


# The command.


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs and a sweep that kept its runs, as the commands write them."""
    folder = tmp_path_factory.mktemp("reports")
    row = '{{"arrival": {0}, "prompt_tokens": {1}, "output_tokens": 20}}\n'
    trace = folder / "few.jsonl"
    trace.write_text("".join(row.format(n / 20, 700 + n) for n in range(40)))
    for name, allocator in (("paged", "paged"), ("best", "contiguous")):
        flags = ["--allocator", allocator, "--slo", "ttft=2s", "--out", str(folder / name)]
        flags += ["--set", "allocator.fit=best"] if allocator == "contiguous" else []
        assert run(["replay", str(trace), "--request-rate", "10", *flags]) == 0
    spec = folder / "sweep.toml"
    spec.write_text(
        f'trace = "{trace}"\n[scenario]\nslo = ["ttft=2s"]\n[grid]\nallocator = ["paged", "radix"]\n'
    )
    assert (
        run(["sweep", str(spec), "--out", str(folder / "sweep"), "--keep-runs", "--jobs", "1"]) == 0
    )
    return folder


def test_runs_sweeps_and_plans_go_into_one_report(
    runs: Path, explored: Plan, tmp_path: Path
) -> None:
    save_plan(plan_document(explored, "kvsim plan x"), run_of(explored), tmp_path / "plan")
    out = tmp_path / "all.csv"
    inputs = [str(runs / "paged"), str(runs / "sweep"), str(tmp_path / "plan"), str(runs / "best")]
    assert run(["report", *inputs, "--out", str(out)]) == 0
    made = out.read_text()
    for said in ("3 reports", "2 runs compared", "Sweep sweep: 2 configurations", "GPUs for llama"):
        assert said in made


def test_requests_that_nobody_counted_are_not_judged(runs: Path) -> None:
    def judged(*targets: str, kept: bool) -> Document:
        folder = runs / "sweep" if kept else Path("elsewhere")
        return of_sweep(folder, load_sweep(runs / "sweep"), Terms(Prices(TODAY), targets), "")

    with pytest.raises(ConfigError, match=r"held to ttft=2s and cannot be counted by other limits"):
        judged("ttft=5s", kept=False)
    assert "of requests within" in judged("ttft=5s", kept=True).summary.headline
    assert "meets the objective" in judged("ttft=2s", kept=False).summary.headline
    assert "meets the objective" in judged("ttft_p99=5s", kept=False).summary.headline


def test_a_good_request_is_one_within_the_limits_that_are_asked_about() -> None:
    def per_thousand(target: str) -> float | None:
        terms = Terms(Prices(TODAY, Preference(gpu_prices=((None, 2.0),))), (target,))
        return of_run(make("late", queue=3.0), "a", terms).costs.per_thousand_good_requests

    lenient = per_thousand("ttft=9s")
    assert lenient is not None
    assert per_thousand("ttft=2s") == pytest.approx(lenient / 0.95)


def test_a_plan_is_not_judged_by_other_terms(explored: Plan, tmp_path: Path) -> None:
    save_plan(plan_document(explored, "kvsim plan x"), run_of(explored), tmp_path / "plan")
    for targets, preference in ((("ttft=5s",), Preference()), ((), Preference(provider="any"))):
        terms = Terms(Prices(TODAY, preference), targets)
        with pytest.raises(ConfigError, match="has its own objective and prices"):
            documents([tmp_path / "plan"], terms, "")
    assert documents([tmp_path / "plan"], Terms(Prices(TODAY)), "")


def test_a_sweep_without_results_is_a_report_of_what_is_missing(runs: Path) -> None:
    rows = load_sweep(runs / "sweep")
    waiting = [row._replace(entry=row.entry._replace(status="pending"), metrics={}) for row in rows]
    made = of_sweep(runs / "sweep", waiting, TERMS, "")
    assert made.summary.headline == "No configuration has a result yet."
    assert "2 pending" in made.summary.points[0].text
    some = of_sweep(runs / "sweep", [rows[0], waiting[1]], TERMS, "")
    assert "Without a result" in titles(some)
    assert "1 of 2 finished" in some.facts


def test_a_saved_plan_gives_the_report_of_the_plan_itself(explored: Plan, tmp_path: Path) -> None:
    places = Places((tmp_path / "now.csv", tmp_path / "plan.json"), tmp_path / "plan")
    places.check()
    places.write(explored, "kvsim plan x")
    assert run(["report", str(tmp_path / "plan"), "--out", str(tmp_path / "later.csv")]) == 0
    assert (tmp_path / "later.csv").read_bytes() == (tmp_path / "now.csv").read_bytes()
    assert run(["report", str(tmp_path / "plan.json"), "--out", str(tmp_path / "data.csv")]) == 0


def test_the_command_in_a_report_makes_the_same_run(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["report", str(runs / "best"), "--out", str(tmp_path / "x.md")]) == 0
    line = next(
        x for x in (tmp_path / "x.md").read_text().splitlines() if x.startswith("kvsim replay")
    )
    command = shlex.split(line)[1:]
    command[command.index("--out") + 1] = str(tmp_path / "again")
    monkeypatch.chdir(runs)
    assert run(command) == 0
    for name in ("summary.json", "requests.parquet"):
        assert (tmp_path / "again" / name).read_bytes() == (runs / "best" / name).read_bytes()


def spoil_summary(folder: Path) -> None:
    (folder / "summary.json").write_text('{"duration": 1}')


def spoil_table(folder: Path) -> None:
    (folder / "requests.parquet").write_bytes(b"PAR1")


def lose_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (spoil_summary, "completed is missing"),
        (spoil_table, "requests.parquet"),
        (lose_manifest, "holds no run, sweep or plan"),
        (shutil.rmtree, "does not exist"),
    ],
)
def test_a_damaged_run_is_one_line_and_no_report(
    runs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], None],
    said: str,
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs / "paged", folder)
    spoil(folder)
    assert run(["report", str(folder), "--out", str(tmp_path / "x.html")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("kvsim: error: ")
    assert error.count("\n") == 1
    assert said in error
    assert not (tmp_path / "x.html").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 99}, "schema_version 99; this kvsim reads 1"),
        ({"candidates": [{"gpu": 1}]}, "candidates.0."),
        ({"trace": None}, "trace"),
    ],
)
def test_a_damaged_plan_is_told_by_its_key(
    explored: Plan,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, object],
    said: str,
) -> None:
    data = {**plan_document(explored, ""), **change}
    (tmp_path / "plan.json").write_text(json.dumps(data))
    assert run(["report", str(tmp_path), "--out", str(tmp_path / "x.html")]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--out FILE is missing"),
        (["--out", "x.doc"], "must end in .html, .md, .pdf, .csv"),
        (["--out", "nowhere/x.html"], "nowhere is not a folder"),
        (["--out", "x.html", "--slo", "speed=2s"], "unknown latency 'speed'"),
        (["--out", "x.html", "--gpu-price", "free"], "--gpu-price free"),
    ],
)
def test_a_mistake_in_a_flag_is_one_line(
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["report", str(runs / "paged"), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_plan_is_written_only_into_a_new_folder(explored: Plan, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(ConfigError, match="not empty"):
        save_plan({}, None, tmp_path)
    assert (tmp_path / "mine").read_text() == "kept"
