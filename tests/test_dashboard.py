"""The dashboard's pages, run as Streamlit runs them but without a browser."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree

import pytest

pytest.importorskip("streamlit", reason="the dashboard's packages are not installed")

from kvsim.dashboards import jobs, pages, plans
from kvsim.dashboards.launch import RUNS_VARIABLE
from kvsim.dashboards.workspace import scratch
from streamlit import config
from streamlit.testing.v1 import AppTest

from kvsim.cli.app import run as kvsim
from kvsim.compose import simulate
from kvsim.scenario import Scenario

# Python 3.11 cannot parse in two threads at once, which magic would do beside a job.
config.set_option("runner.magicEnabled", False)
PATIENCE = 60
READS_RUNS = ("compare", "run")


@pytest.fixture(autouse=True)
def own_main(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take back ``__main__``, which Streamlit replaces by its page: processes that are spawned run it."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


def script(name: str) -> None:
    from kvsim.dashboards import pages

    pages.alone(name)


def opened(name: str, **chosen: str | list[str]) -> AppTest:
    """A page as a link with these choices shows it."""
    page = AppTest.from_function(script, default_timeout=PATIENCE, kwargs={"name": name})
    for key, value in chosen.items():
        page.query_params[key] = value
    return page.run()


def said(page: AppTest) -> str:
    """All messages and texts of a page."""
    parts = [
        *page.title, *page.error, *page.warning, *page.info, *page.success, *page.caption,
        *page.markdown, *page.text, *page.subheader,
    ]  # fmt: skip
    return "\n".join(str(part.value) for part in parts)


def charts(page: AppTest) -> int:
    return len(page.get("plotly_chart"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two complete runs of twenty requests."""
    root = tmp_path_factory.mktemp("runs")
    for name in ("contiguous", "paged"):
        scenario = Scenario().changed(allocator=name, workload={"limit": 20}, slo={"ttft": 1.0})
        simulate(scenario, "traces/chat.jsonl.gz", out=root / name)
    return root


@pytest.fixture
def runs(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of runs of the test's own, which the dashboard shows."""
    monkeypatch.setenv(RUNS_VARIABLE, str(tmp_path / "runs"))
    return copytree(made, tmp_path / "runs")


@pytest.mark.parametrize("name", [name for name in pages.NAMES if name != "plan"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_page_works_with_nothing_configured(
    name: str, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(RUNS_VARIABLE, raising=False)
    page = opened(name, lang=language)
    assert not page.exception
    assert not page.error
    assert re.search("[\u4e00-\u9fff]", page.title[0].value) if language == "zh" else page.title[0]
    assert charts(page) or name == "replay"


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda run: [file.unlink() for file in run.iterdir()], ""),
    "partial": (lambda run: (run / "requests.parquet").unlink(), "requests.parquet missing"),
    "corrupt manifest": (lambda run: (run / "manifest.json").write_text("{"), "cannot be read"),
    "corrupt table": (lambda run: (run / "requests.parquet").write_bytes(b"PAR1"), "cannot be read"),
    "corrupt samples": (lambda run: (run / "samples.parquet").write_bytes(b""), "cannot be read"),
    "foreign version": (
        lambda run: (run / "manifest.json").write_text('{"schema_version": 99}'),
        "schema_version 99",
    ),
    "bare summary": (lambda run: (run / "summary.json").write_text("{}"), ""),
    "bare manifest": (lambda run: (run / "manifest.json").write_text('{"schema_version": 3}'), ""),
    "odd summary": (
        lambda run: (run / "summary.json").write_text('{"completed": "x", "kv_memory": {}}'),
        "",
    ),
    "link": (
        lambda run: [(run / "summary.json").unlink(), (run / "summary.json").symlink_to("/etc/hosts")],
        "summary.json is a link",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", READS_RUNS)
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_folder_gives_a_message_and_the_others_are_shown(
    runs: Path, kind: str, name: str
) -> None:
    spoil, message = BAD[kind]
    spoil(runs / "paged")
    page = opened(name, run="paged")
    assert not page.exception
    assert "Traceback" not in said(page)
    assert str(runs) not in said(page)
    if kind != "corrupt samples" or name == "run":  # Compare needs no samples
        assert message in said(page)
    if name == "compare":
        assert charts(page) == 4


def test_a_plan_that_cannot_be_read_is_told_where_plans_are_shown(runs: Path) -> None:
    (runs / "plan.json").write_text('{"candidates": [], "objective": [], "hash": ""}')
    page = opened("plan", plan="plan.json", prices="none, so that nothing is planned")
    assert not page.exception
    assert "plan.json: is no plan" in said(page)


@pytest.mark.parametrize("name", READS_RUNS)
@pytest.mark.parametrize("gone", ["requests.parquet", "samples.parquet", "."])
def test_a_run_that_goes_while_it_is_looked_at_gives_a_message(
    runs: Path, name: str, gone: str
) -> None:
    page = opened(name, run="paged")
    rmtree(runs / "paged") if gone == "." else (runs / "paged" / gone).unlink()
    page.run()
    assert not page.exception
    if gone == "requests.parquet":
        assert gone in said(page)
    assert str(runs) not in said(page)


@pytest.mark.parametrize("name", READS_RUNS)
def test_a_folder_without_runs_says_what_to_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUNS_VARIABLE, str(tmp_path))
    page = opened(name)
    assert not page.exception
    assert "kvsim replay TRACE --out" in page.info[0].value


@pytest.mark.parametrize(
    "chosen",
    [
        {"run": "../../etc"},
        {"run": "/etc/passwd", "focus": "..", "baseline": "nobody"},
        {"lang": "<script>", "metric": "x" * 10_000, "price": "nan"},
        {"run": "paged", "range": "inf..-1", "request": "-5", "slowest": "many"},
    ],
)
@pytest.mark.parametrize("name", READS_RUNS)
def test_what_an_address_asks_for_and_cannot_be_falls_back_to_the_default(
    runs: Path, name: str, chosen: dict[str, str]
) -> None:
    page = opened(name, **chosen)
    assert not page.exception
    assert not page.error
    assert page.title[0].value in ("Compare runs", "One run")
    assert page.selectbox(key="lang").value == "en"


def test_compare_shows_the_runs_of_the_link_and_deltas_against_its_baseline(runs: Path) -> None:
    page = opened("compare", run=["contiguous", "paged"], focus="paged", baseline="contiguous")
    assert page.multiselect(key="run").value == ["contiguous", "paged"]
    cards = {card.label: card for card in page.metric}
    assert cards["TTFT P99"].value.endswith("ms")
    assert cards["KV usage"].delta.endswith("%")
    table = page.dataframe[0].value
    assert table["run"].tolist() == ["contiguous", "paged"]
    assert table["completed"].tolist() == [20, 20]
    assert table["usd_per_million"].min() > 0


def test_a_choice_is_written_into_the_address_and_survives_in_a_link(runs: Path) -> None:
    page = opened("compare")
    page.selectbox(key="focus").set_value("contiguous").run()
    page.number_input(key="price").set_value(2.5).run()
    again = opened("compare", **page.query_params)
    assert again.selectbox(key="focus").value == "contiguous"
    assert again.number_input(key="price").value == 2.5
    assert set(page.query_params) == {"focus", "price"}


def test_a_price_changes_what_tokens_cost(runs: Path) -> None:
    cheap, dear = (
        opened("compare", price=price).dataframe[0].value["usd_per_million"].tolist()
        for price in ("1", "2")
    )
    assert [2 * cost for cost in cheap] == pytest.approx(dear)


def test_a_run_shows_its_verdict_its_requests_and_any_one_of_them(runs: Path) -> None:
    page = opened("run", run="paged", request="7", metric="e2el")
    assert not page.exception
    assert "Bottleneck" in page.success[0].value
    assert {card.label: card.value for card in page.metric}["Prompt tokens"]
    assert charts(page) == 5
    assert "No served request has row 900" in said(opened("run", run="paged", request="900"))


def test_a_time_range_is_kept_in_the_address(runs: Path) -> None:
    page = opened("run", run="paged")
    low, high = page.slider(key="range").value
    middle = round((low + high) / 2, 3)
    page.slider(key="range").set_value((low, middle)).run()
    assert not page.exception
    assert page.query_params["range"].startswith(f"{low:.6g}..")
    again = opened("run", run="paged", range=page.query_params["range"])
    assert again.slider(key="range").value[1] == pytest.approx(middle, rel=1e-3)


def test_a_sweep_is_shown_configuration_by_configuration(runs: Path, write) -> None:  # type: ignore[no-untyped-def]
    trace = Path("traces/chat.jsonl.gz").resolve()
    text = f'trace = "{trace}"\n[scenario]\nworkload = {{ limit = 5 }}\n[grid]\nblock_size = [16, 32]\n'
    assert (
        kvsim(["sweep", str(write("s.toml", text)), "--out", str(runs / "swept"), "--jobs", "1"])
        == 0
    )
    page = opened("compare", run=["swept #1 16", "swept #2 32"])
    assert page.dataframe[0].value["run"].tolist() == ["swept #1 16", "swept #2 32"]
    only = opened("run", run="swept #2 32")
    assert not only.exception
    assert "Only the summary" in said(only)


def test_a_replay_from_the_page_is_written_beside_the_others(runs: Path) -> None:
    page = opened("replay", trace="code", allocator="radix", limit="40")
    page.text_input(key="name-code-radix").input("mine")
    page.button[0].click().run()
    assert not page.error
    assert "mine is done" in page.success[0].value
    assert (runs / "mine" / "summary.json").is_file()
    assert opened("run", run="mine").selectbox(key="run").value == "mine"


def test_another_replay_under_the_same_name_is_refused(runs: Path) -> None:
    def replayed(allocator: str) -> AppTest:
        page = opened("replay", allocator=allocator, limit="5")
        page.text_input(key=f"name-chat-{allocator}").input("mine")
        return page.button[0].click().run()

    assert "mine is done" in said(replayed("paged"))
    for allocator in ("buddy", "paged"):
        assert "mine" in replayed(allocator).error[0].value
    assert opened("run", run="mine").caption[0].value.count("paged") == 1


@pytest.mark.parametrize("name", ["../out", "a/b", "", ".hidden", "paged"])
def test_a_replay_cannot_be_written_elsewhere_or_over_another(runs: Path, name: str) -> None:
    before = sorted(runs.parent.rglob("*"))
    page = opened("replay", limit="5")
    page.text_input(key="name-chat-paged").input(name)
    page.button[0].click().run()
    assert not page.exception
    assert page.error
    assert sorted(runs.parent.rglob("*")) == before


def test_the_memory_map_moves_with_its_slider() -> None:
    page = opened("memory", t="1", by="owner")
    assert page.slider(key="t").value == 1.0
    before = [caption.value for caption in page.caption]
    page.slider(key="t").set_value(15.0).run()
    assert not page.exception
    assert [caption.value for caption in page.caption] != before
    assert page.query_params["t"] == "15"
    assert charts(page) == 7


def test_a_config_of_ones_own_is_sized_and_a_bad_one_explained() -> None:
    page = opened("sizing", model="own")
    assert "config.json" in page.info[0].value
    config = (
        '{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 9}'
    )
    page.text_area(key="config").input(config).run()
    assert "num_attention_heads" in page.error[0].value
    more = ', "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336}'
    page.text_area(key="config").input(config[:-1] + more).run()
    assert not page.error
    assert {card.label: card.value for card in page.metric}["KV per token"] == "131 kB"
    page.text_area(key="config").input("{").run()
    assert "not valid JSON" in page.error[0].value


def test_a_model_that_does_not_fit_is_explained() -> None:
    page = opened("sizing", model="deepseek-ai/DeepSeek-V3", gpu="L4-24GB")
    assert not page.exception
    assert "does not fit" in page.error[0].value


def test_a_plan_is_made_in_the_background_and_asked_again_is_there_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plans, "MOST_PROCESSES", 1)
    asked = {"trace": "chat", "limit": "40", "gpu": "L40S-48GB", "tp": "1", "share": "90"}
    page = opened("plan", **asked)
    assert not page.exception
    until = time.monotonic() + PATIENCE
    while not page.success and time.monotonic() < until:
        time.sleep(0.2)
        page.run()
    assert "L40S-48GB" in page.success[0].value
    assert "GPUs by static sizing of means" in said(page)
    while not page.subheader and time.monotonic() < until:
        time.sleep(0.2)
        page.run()
    assert [title.value for title in page.subheader] == ["How far from each limit"]
    assert "requests within all limits" in page.dataframe[0].value["objective"].tolist()
    again = opened("plan", **asked, lang="zh")
    assert "L40S-48GB" in again.success[0].value
    assumed = [text.value for text in again.markdown if text.value.startswith("- ")]
    assert len(assumed) > 5
    limits = again.dataframe[0].value
    words = [*assumed, *limits.columns, *map(str, limits.to_numpy().flatten())]
    assert not re.findall("[a-z]{4,}", "".join(words).replace("token", ""))
    dear = opened("plan", **asked, prices="l40s=9.99, nonsense")
    assert "price nonsense" in dear.error[0].value


def test_jobs_are_done_once_and_stop_when_they_are_told() -> None:
    done = jobs.Jobs()
    calls: list[int] = []

    def count(told: jobs.Told) -> int:
        calls.append(1)
        return len(calls)

    assert done.start("a", count).wait(PATIENCE)
    assert done.start("a", count).result == 1

    def endless(told: jobs.Told) -> None:
        while True:
            told("waiting", 1)
            time.sleep(0.01)

    job = done.start("b", endless)
    job.stop()
    assert job.wait(PATIENCE)
    assert isinstance(job.error, jobs.StoppedError)


def test_an_upload_gets_a_name_that_leads_nowhere() -> None:
    from kvsim.dashboards.views.traces import kept

    class Upload:
        name = "../../../etc/passwd\n.jsonl"

        def getvalue(self) -> bytes:
            return b"{}"

    path = kept(Upload())  # type: ignore[arg-type]
    assert path.parent == scratch() / "uploads"
    assert path.read_bytes() == b"{}"
