"""The Python interface: the examples of docs/API.md do what stands under them; data frames."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import kvsim
from kvsim.errors import ConfigError
from kvsim.runs import load_run
from kvsim.sweeping.configuration import configurations
from kvsim.sweeping.drive import sweep
from kvsim.sweeping.local import LocalWorkers
from kvsim.sweeping.results import load_sweep
from kvsim.sweeping.spec import parse_spec

pandas = pytest.importorskip("pandas")

EXAMPLE = re.compile(r"```python\n(.*?)```\n```text\n(.*?)```", re.S)


@pytest.fixture(scope="module")
def run(root: Path, tmp_path_factory: pytest.TempPathFactory) -> kvsim.RunResult:
    scenario = kvsim.Scenario(workload={"limit": 60}, slo={"ttft": 2.0})
    out = tmp_path_factory.mktemp("runs") / "first"
    return kvsim.simulate(scenario, root / "traces" / "chat.jsonl.gz", out=out)


def test_the_examples_of_the_page_print_what_stands_under_them(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    page = (root / "docs" / "API.md").read_text(encoding="utf-8")
    examples = EXAMPLE.findall(page)
    assert len(examples) == page.count("```python")
    names: dict[str, object] = {}
    for code, printed in examples:
        exec(code, names)
        assert capsys.readouterr().out == printed


def test_a_frame_of_a_table_is_the_same_from_memory_and_from_disk(run: kvsim.RunResult) -> None:
    assert run.path is not None
    read = load_run(run.path)
    for table in ("requests", "samples"):
        made = kvsim.frame(getattr(run, table))
        assert len(made) == len(getattr(run, table))
        pandas.testing.assert_frame_equal(made, kvsim.frame(getattr(read, table)))


def test_a_frame_of_runs_has_every_key_of_their_summaries(run: kvsim.RunResult) -> None:
    made = kvsim.frame([run, run])
    assert made.shape[0] == 2
    for key, value in run.summary.items():
        if isinstance(value, dict):
            assert {f"{key}.{part}" for part in value} <= set(made.columns)
        else:
            assert key in made.columns
    assert kvsim.frame(run)["completed"].tolist() == [60]


def test_a_frame_of_a_sweep_has_what_varies_beside_what_came_of_it(
    root: Path, tmp_path: Path
) -> None:
    settings = {"scenario": {"workload": {"limit": 20}}, "grid": {"block_size": [16, 64]}}
    matrix = configurations(parse_spec({"trace": str(root / "traces/chat.jsonl.gz"), **settings}))
    sweep(matrix, tmp_path / "sweep", LocalWorkers(1))
    made = kvsim.frame(load_sweep(tmp_path / "sweep"))
    assert made["block_size"].tolist() == [16, 64]
    assert made["completed"].tolist() == [20, 20]


@pytest.mark.parametrize("thing", [3, "run", ["runs/first"], {"a": 1}])
def test_what_has_no_frame_is_refused_with_what_has_one(thing: object) -> None:
    with pytest.raises(ConfigError, match="RunResult"):
        kvsim.frame(thing)


def test_pandas_is_loaded_only_when_a_frame_is_made(root: Path) -> None:
    probe = (
        "import sys, kvsim\n"
        f"run = kvsim.simulate(kvsim.Scenario(workload={{'limit': 5}}), "
        f"{str(root / 'traces' / 'chat.jsonl.gz')!r})\n"
        "kvsim.frame\n"
        "before = 'pandas' in sys.modules\n"
        "kvsim.frame(run)\n"
        "print(before, 'pandas' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_without_pandas_the_message_says_what_to_install(
    run: kvsim.RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"pip install 'kvsim\[frames\]'"):
        kvsim.frame(run)
