"""What the dashboard's pages are made of: texts, numbers, folders, figures' data, the server's options."""

from __future__ import annotations

import ast
import json
import os
import re
import socket
import string
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from kvsim.dashboards import launch
from kvsim.dashboards.evidence import validations
from kvsim.dashboards.figures.scales import amounts_axis, doublings, seconds_axis
from kvsim.dashboards.figures.style import breadth
from kvsim.dashboards.money import cost_of
from kvsim.dashboards.samples import SAMPLES, sample_trace
from kvsim.dashboards.shown import brief, dollars, duration, percent, quantity, size
from kvsim.dashboards.sizes import limits_for, placed
from kvsim.dashboards.store import read, scan
from kvsim.dashboards.text import LANGUAGES, Words, catalogue, plain

from kvsim.analysis.digest import SLOWEST, digest
from kvsim.analysis.overload import Backlog
from kvsim.analysis.prefix_tree import Asked, Branch, prefix_tree
from kvsim.analysis.verdict import Facts, verdict
from kvsim.catalog import load_gpu, load_model
from kvsim.cli.app import run as kvsim
from kvsim.costs.bounds import least
from kvsim.costs.operators import load_profile
from kvsim.errors import ConfigError
from kvsim.planning.objective import read_objective
from kvsim.planning.sensitivity import cases
from kvsim.tables import EngineRecord, Limits, ReplicaTotals
from tests.recorded import record, served

FOLDER = Path(launch.__file__).parent
SOURCES = sorted(FOLDER.rglob("*.py"))


# Texts.


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_every_text_is_in_every_language_and_says_the_same_things() -> None:
    for key, texts in catalogue().items():
        assert texts.keys() == LANGUAGES.keys(), key
        assert all(texts.values()), key
        assert fields(texts["en"]) == fields(texts["zh"]), key


def asked_for() -> tuple[set[str], set[str]]:
    """Keys that pages ask for, and beginnings of keys whose end is computed."""
    whole, begun = set(), set()
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                whole.add(node.value)
            if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                begun.add(str(node.values[0].value))
    return whole, {text for text in begun if re.fullmatch(r"[a-z_]+\.[a-z_]*", text)}


def test_no_text_is_missing_or_left_over() -> None:
    whole, begun = asked_for()
    ends = (".nav",)
    for key in catalogue():
        used = key in whole or key.startswith(tuple(begun)) or key.endswith(ends)
        assert used, f"nobody says {key}"
    keys = re.compile(
        r"(compare|run|replay|memory|prefix|plan|sizing|calibration|axis|error)\.[a-z_]*[a-z]"
    )
    missing = {text for text in whole if keys.fullmatch(text) and text not in catalogue()}
    assert not missing


TITLE = 44
"""Columns of text that a title has on a phone."""


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_titles_of_figures_fit_a_phone(source: Path) -> None:
    for key in re.findall(r'titled\(figure, say\("([a-z_.]+)"', source.read_text(encoding="utf-8")):
        for text in catalogue()[key].values():
            assert breadth(text) <= TITLE, key


def remarks() -> Iterator[str]:
    """What the library says about runs and plans, as far as pages show it."""
    calm = Facts(10.0, 10, 0, 0.5, 0.9, 0.8, None)
    growing = calm._replace(backlog=Backlog(0.25, 1.5, 120.0, overloaded=True))
    for kv, seats, budget in ((3, 2, 1), (2, 3, 1), (1, 2, 3), (0, 0, 0)):
        for closed in (True, False):
            replica = ReplicaTotals(1, 1, 1.0, 1.0, 1, kv, seats, budget)
            limits = Limits(64, 2048, closed)
            engine = EngineRecord(1, limits, (replica,), record(served(0, 0.0)).samples)
            yield from verdict(engine, growing if closed else calm)
    yield from (case.label for case in cases(0.1, 1.2))
    for texts, share in ((["ttft=2s", "tpot=50ms"], 0.9), (["ttft_p99=2s"], None)):
        yield from read_objective(texts, share).texts
    gpu = load_gpu("l4")
    model = load_model("deepseek-ai/DeepSeek-V3")
    yield str(placed(model, gpu, "auto", limits_for(gpu, 0.9, 16), 1).refusal)


def test_what_the_library_says_is_said_in_chinese_too() -> None:
    say = Words("zh")
    for remark in remarks():
        said = re.sub(r"\S+/\S+|token", "", say.translated(remark))
        assert not re.findall("[a-z]{4,}", said), remark
    assert say.translated("nobody wrote this; 5% peak") == "nobody wrote this；峰值 5%"
    assert Words("en").translated("5% peak") == "5% peak"


@pytest.mark.parametrize(
    ("outside", "shown"),
    [("a*b", r"a\*b"), ("$1 or $2", r"\$1 or \$2"), ("[x](y)", r"\[x\](y)"), ("_a_b", r"\_a_b")],
)
def test_a_text_from_outside_is_shown_as_it_is(outside: str, shown: str) -> None:
    assert plain(outside) == shown


# Numbers.


@pytest.mark.parametrize(
    ("axis", "values", "texts"),
    [
        (seconds_axis, [1e-3, 5_000], ["1 ms", "10 ms", "100 ms", "1 s", "10 s", "1 min", "10 min", "1 h"]),
        (seconds_axis, [0.4, 11], ["500 ms", "1 s", "2 s", "5 s", "10 s"]),
        (amounts_axis, [900, 2e6], ["1,000", "10 k", "100 k", "1 M"]),
        (amounts_axis, [], ["1"]),
        (doublings, [300, 150_000], ["512", "2,048", "8,192", "32,768", "131,072"]),
    ],
)  # fmt: skip
def test_a_logarithmic_axis_has_few_round_ticks(
    axis: Callable[[list[float], str], dict[str, list[str]]], values: list[float], texts: list[str]
) -> None:
    assert axis(values, "title")["ticktext"] == texts


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (duration(0.0123), "12.3 ms"),
        (duration(90), "90 s"),
        (duration(7200), "2 h"),
        (duration(0), "0 s"),
        (brief(9_876.0), "9.9 s"),
        (brief(72.4), "72 ms"),
        (percent(0.5), "50.0%"),
        (quantity(1_234_567), "1.23 M"),
        (quantity(1_868.4), "1,868"),
        (quantity(7.616, "/s"), "7.62 /s"),
        (size(131_072), "131 kB"),
        (dollars(20_036.4), "$20,036"),
        (dollars(0.0456), "$0.046"),
    ],
)
def test_numbers_are_written_for_people(written: str, expected: str) -> None:
    assert written == expected


@pytest.mark.parametrize("write", [duration, brief, percent, quantity, size, dollars])
@pytest.mark.parametrize("nothing", [None, "text", True, {}])
def test_what_is_no_number_shows_as_absent(write: Callable[[object], str], nothing: object) -> None:
    assert write(nothing) == "–"


# The folder of runs.


def test_runs_are_found_by_their_place_and_hidden_folders_are_not(tmp_path: Path) -> None:
    for place in ("a", "deep/er/b", ".hidden", "too/deep/for/us"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        record(served(0, 0.0), out=tmp_path / place)
    shelf = read(tuple(scan(tmp_path)))
    assert list(shelf.runs) == ["a", "deep/er/b"]
    assert not shelf.problems


def test_a_run_itself_can_be_the_folder(tmp_path: Path) -> None:
    record(served(0, 0.0), out=tmp_path / "mine")
    assert list(read(tuple(scan(tmp_path / "mine"))).runs) == ["mine"]


def test_links_do_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    record(served(0, 0.0), out=tmp_path / "outside")
    inside = tmp_path / "runs"
    record(served(0, 0.0), out=inside / "a")
    (inside / "linked").symlink_to(tmp_path / "outside")
    (inside / "a" / "requests.parquet").unlink()
    (inside / "a" / "requests.parquet").symlink_to(tmp_path / "outside" / "requests.parquet")
    shelf = read(tuple(scan(inside)))
    assert not shelf.runs
    assert shelf.problems == {"a": "a/requests.parquet is a link, which is not followed"}


def test_what_is_no_file_and_what_has_no_readable_name_is_told_and_not_waited_for(
    tmp_path: Path,
) -> None:
    record(served(0, 0.0), out=tmp_path / "a")
    (tmp_path / "a" / "summary.json").unlink()
    os.mkfifo(tmp_path / "a" / "summary.json")
    os.mkfifo(tmp_path / "plan.json")
    record(served(0, 0.0), out=tmp_path / "b")
    os.rename(tmp_path / "b", os.fsencode(tmp_path) + b"/\xff")
    shelf = read(tuple(scan(tmp_path)))
    assert not shelf.runs
    assert shelf.problems["a"] == "a/summary.json is no file"
    assert shelf.problems["plan.json"] == "plan.json is no file"
    assert shelf.problems.keys() - {"a", "plan.json"} == {"\\udcff"}


def test_a_comparison_that_cannot_be_read_is_told_and_the_others_are_shown(tmp_path: Path) -> None:
    good = {"name": "a", "metrics": {"ttft": {"measured": 2.0, "predicted": 1.0}}}
    (tmp_path / "good.json").write_text(json.dumps({"runs": [good]}))
    for number, bad in enumerate(([{"name": "b", "metrics": []}], [5], [{"metrics": {}}])):
        (tmp_path / f"bad-{number}.json").write_text(json.dumps({"runs": bad}))
    runs, problems = validations(tmp_path, tmp_path / "nowhere")
    assert [run.name for run in runs] == ["a"]
    assert runs[0].metrics["ttft"].error == -0.5
    assert len(problems) == 3


def test_other_json_is_no_plan_and_a_foreign_plan_is_explained(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": 1}')
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "plan.json").write_text('{"candidates": [], "objective": [], "hash": "x"}')
    (tmp_path / "broken.json").write_text("{")
    shelf = read(tuple(scan(tmp_path)))
    assert not shelf.plans
    assert set(shelf.problems) == {"plan.json", "broken.json"}
    assert "schema_version" in shelf.problems["plan.json"]


def test_a_run_whose_manifest_says_nothing_has_no_cost(tmp_path: Path) -> None:
    assert cost_of(record(served(0, 0.0))) is None


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_those_of_the_project(name: str, tmp_path: Path, root: Path) -> None:
    import gzip

    made = sample_trace(name, tmp_path)
    shipped = root / "traces" / f"{name}.jsonl.gz"
    if name == "mooncake":
        return  # the project's is written in another format
    assert gzip.decompress(made.read_bytes()) == gzip.decompress(shipped.read_bytes())


# What figures are drawn from.


def test_a_digest_has_the_quantiles_of_the_table_and_its_slowest_requests() -> None:
    sequences = [served(row, 0.0, queue=0.01 * row) for row in range(SLOWEST + 50)]
    table = record(*sequences, rejected=2).requests
    found = digest(table)
    assert found.requests == SLOWEST + 50
    queue = np.sort(table.served().scheduled - table.served().arrival)
    np.testing.assert_allclose(
        found.curves["queue_time"][[0, 200, 400]], np.quantile(queue, [0, 0.5, 1])
    )
    assert found.slowest.row.tolist() == list(range(SLOWEST + 49, 49, -1))
    band = found.bands["queue_time"]
    assert (band.least.tolist(), band.requests.tolist()) == ([64], [SLOWEST + 50])
    assert band.p50[0] == pytest.approx(np.median(queue))


def test_a_run_that_served_nobody_has_an_empty_digest() -> None:
    found = digest(record(rejected=3).requests)
    assert (found.requests, found.curves, found.bands, len(found.slowest)) == (0, {}, {}, 0)


def test_prefixes_become_a_tree_with_what_was_found() -> None:
    asked = [Asked([1, 2, 3], 10, 0), Asked([1, 2, 4], 10, 20), Asked([9], 10, 0)]
    assert prefix_tree(asked) == [
        Branch(None, 20, 2, 20),
        Branch(0, 10, 1, 0),
        Branch(0, 10, 1, 0),
        Branch(None, 10, 1, 0),
    ]
    assert len(prefix_tree(asked, most=2)) == 2
    assert prefix_tree([]) == []


@pytest.mark.parametrize("operator", ["gemm", "decode_attention", "prefill_attention", "copy"])
def test_nothing_that_was_timed_is_faster_than_its_roofline(operator: str) -> None:
    profile = load_profile("h200")
    gpu = load_gpu(profile.gpu)
    shares = []
    for series in profile.series(operator):
        for x, time in zip(series["x"], series["median"], strict=True):
            demand = least(operator, tuple(series["at"]), x)
            assert demand is not None
            shares.append(demand.bound(gpu) / time)
    # Small inputs lie in the L2 cache, so that a few are read faster than memory could give them.
    assert np.quantile(shares, 0.95) <= 1.0
    assert max(shares) > 0.6
    assert least("moe", ("tiled",), 1) is None


# The server.


def test_the_server_tells_nobody_and_listens_to_this_machine() -> None:
    line = " ".join(launch.command("127.0.0.1", 8501))
    assert "--server.address=127.0.0.1" in line
    assert "--browser.gatherUsageStats=false" in line
    assert "--client.showErrorDetails=none" in line
    assert re.search(r"--server.maxUploadSize=\d+ ", line)


@pytest.mark.parametrize(
    ("host", "private"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("10.0.0.5", False)],
)  # fmt: skip
def test_only_loopback_addresses_are_private(host: str, private: bool) -> None:
    assert launch.is_private(host) is private


def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path | None, str, int]]:
    calls: list[tuple[Path | None, str, int]] = []
    monkeypatch.setattr(launch, "serve", lambda *given: calls.append(given))
    monkeypatch.setattr(launch, "require_packages", lambda: None)
    return calls


def test_another_address_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    calls = started(monkeypatch)
    assert kvsim(["dashboard", str(tmp_path), "--host", "0.0.0.0", "--port", "18765"]) == 0
    assert "can be reached from other machines" in capsys.readouterr().err
    assert kvsim(["dashboard", "--port", "18765"]) == 0
    assert not capsys.readouterr().err
    assert calls == [(tmp_path, "0.0.0.0", 18765), (None, "127.0.0.1", 18765)]


def test_a_folder_that_is_none_and_a_port_that_is_taken_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    started(monkeypatch)
    assert kvsim(["dashboard", str(tmp_path / "nothing")]) == 2
    assert "does not exist" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert kvsim(["dashboard", "--port", str(port)]) == 2
    assert "cannot listen" in capsys.readouterr().err


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "NEEDED", ("json", "no_such_package"))
    with pytest.raises(
        ConfigError, match=r"needs no_such_package: pip install 'kvsim\[dashboard\]'"
    ):
        launch.require_packages()


# Rules of the code.


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_page_writes_html_or_unpickles(source: Path) -> None:
    text = source.read_text(encoding="utf-8")
    assert "unsafe_allow_html" not in text
    assert not re.search(r"st\.(html|iframe)\b|components\.v1", text)
    for node in ast.walk(ast.parse(text)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        assert not {"pickle", "marshal", "shelve", "dill"} & set(names)
        called = (
            node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        )
        assert called not in {"eval", "exec"}
