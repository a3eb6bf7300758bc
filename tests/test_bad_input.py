"""What cannot be: every mistake is one line that says what was seen and what is accepted."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kvsim.cli.app import run

Said = Callable[..., tuple[int, str]]
SPLIT = "--gpu l4 --tensor-parallel-size 8 --slo ttft=100s --quick --jobs 1 --no-cache"
"""A question about more GPUs than any machine of the usual provider has."""


@pytest.fixture
def said(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Said:
    """Run a command in a folder of its own, with TRACE in it; its exit code and its one line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "chat.jsonl.gz").symlink_to(root / "traces" / "chat.jsonl.gz")

    def ask(command: str) -> tuple[int, str]:
        code = run(command.replace("TRACE", "chat.jsonl.gz --limit 40").split())
        out, error = capsys.readouterr()
        assert error.startswith("kvsim: error: ")
        assert error.count("\n") == 1
        assert not out or code == 5
        return code, error

    return ask


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        # An objective that cannot be met, or meant.
        ("replay TRACE --fail-on ttft_p99=1us", 5, "ms, more than 0.001 ms"),
        ("replay TRACE --fail-on ttft_p99=0s", 2, "must be above zero"),
        ("plan TRACE --quick --jobs 1 --slo ttft_p99=-2s", 2, "ttft_p99=-2s: must be above zero"),
        ("replay TRACE --goodput ttft:-500", 2, "must be above zero"),
        ("replay TRACE --fail-on tfft_p99=1s", 2, "did you mean 'ttft'"),
        ("plan TRACE --quick --jobs 1 --slo ttft_p99=1us", 5, "even on an idle engine"),
        ("plan TRACE --quick --jobs 1", 2, "a plan needs an objective"),
        (f"plan TRACE {SPLIT}", 5, "accepted: --provider any, or --gpu-price L4-24GB=DOLLARS)"),
        # A GPU that cannot hold the model, or is none.
        ("replay TRACE --model llama-3-70b --gpu l4", 4, "the smallest tensor parallel size that"),
        ("plan TRACE --model llama-3-70b --gpu l4 --jobs 1 --slo ttft=1s", 4, "does not fit on L4"),
        ("recommend TRACE --model llama-3-70b --gpu l4", 4, "does not fit on L4"),
        ("plan TRACE --jobs 1 --tensor-parallel-size 3 --slo ttft=1s", 2, "does not divide"),
        ("plan TRACE --gpu , --jobs 1 --slo ttft=1s", 2, "names nothing"),
        ("plan TRACE --gpu= --jobs 1 --slo ttft=1s", 2, "names nothing"),
        ("replay TRACE --gpu h201", 2, "did you mean 'h200'"),
        ("replay TRACE --model lama-3-8b", 2, "did you mean 'llama-3-8b'"),
        # A name that does not exist, wherever it stands.
        ("replay TRACE --alocator paged", 2, "did you mean --allocator"),
        ("replay TRACE --set alocator=paged", 2, "did you mean 'allocator'"),
        ("replay TRACE --set allocator.blok_size=3", 2, "did you mean 'block_size'"),
        ("replay TRACE --set workload.limt=3", 2, "did you mean 'limit'"),
        ("compare TRACE --allocators pagd", 2, "did you mean 'paged'"),
        ("recomend TRACE", 2, "recommend"),
        # A price that nobody has.
        ("plan TRACE --jobs 1 --slo ttft=1s --commitment 3y", 2, "no 3y price for H200"),
        ("plan TRACE --jobs 1 --slo ttft=1s --region atlantis", 2, "in atlantis"),
        ("plan TRACE --jobs 1 --slo ttft=1s --price-file none.csv", 2, "none.csv: No such file"),
    ],
)
def test_a_command_that_cannot_be(said: Said, command: str, code: int, text: str) -> None:
    seen, line = said(command)
    assert seen == code
    assert text in line


@pytest.mark.parametrize("text", ["{0},,{0}", ",{0}", "{0},", ",", ""])
@pytest.mark.parametrize(
    ("command", "flag", "name"),
    [
        ("plan TRACE --jobs 1 --slo ttft=1s", "--gpu", "h200"),
        ("plan TRACE --jobs 1 --slo ttft=1s", "--tensor-parallel-size", "2"),
        ("plan TRACE --jobs 1 --slo ttft=1s", "--token-budgets", "auto"),
        ("compare TRACE", "--allocators", "paged"),
        ("compare TRACE", "--schedulers", "chunked"),
        ("compare TRACE", "--isolations", "tenant"),
        ("cache TRACE", "--capacities", "inf"),
        ("cache TRACE", "--policies", "lru"),
        ("leakage TRACE", "--defences", "none"),
    ],
)
def test_a_list_has_no_empty_place(
    said: Said, command: str, flag: str, name: str, text: str
) -> None:
    given = text.format(name)
    code, line = said(f"{command} {flag}={given}")
    assert code == 2
    assert f"{flag} {given!r} {'has an empty place' if name in given else 'names nothing'}" in line


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("", "nothing varies; accepted: at least one of [grid]"),
        ("[grid]", "nothing varies"),
        ("[grid]\nallocator = []", "grid.allocator = []: must not be empty"),
        (f"a = {'[' * 9_000}", "maximum recursion depth"),
        ("[gird]\nallocator = ['paged']", "did you mean 'grid'"),
        ("[grid]\nalocator = ['paged']", "did you mean 'allocator'"),
        ("[grid]\n'workload.limt' = [9]", "did you mean 'limit'"),
        ("[scenario]\nblok_size = 16\n[grid]\nallocator = ['paged']", "did you mean 'block_size'"),
    ],
)
def test_a_sweep_that_cannot_be(said: Said, tmp_path: Path, spec: str, text: str) -> None:
    (tmp_path / "spec.toml").write_text(f"trace = 'chat.jsonl.gz'\n{spec}\n")
    code, line = said("sweep spec.toml --out sweep")
    assert code == 2
    assert line.startswith("kvsim: error: spec.toml: ")
    assert text in line
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize("command", ["sweep show sweep", "sweep spec.toml --out sweep --resume"])
@pytest.mark.parametrize(
    ("pragma", "text"),
    [("user_version", "a ledger of schema 9; this kvsim reads"), ("application_id", "is not the")],
)
def test_a_ledger_of_another_schema_is_left_alone(
    said: Said, tmp_path: Path, command: str, pragma: str, text: str
) -> None:
    from kvsim.sweeping.ledger import Ledger

    (tmp_path / "spec.toml").write_text("trace = 'chat.jsonl.gz'\n[grid]\nblock_size = [16]\n")
    with Ledger.create(tmp_path / "sweep") as ledger:
        path = ledger.path
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA {pragma} = 9")
    before = path.read_bytes()
    code, line = said(command)
    assert code == 2
    assert text in line
    assert path.read_bytes() == before


@pytest.mark.parametrize("remedy", ["--provider any", "--gpu-price L4-24GB=1"])
def test_what_a_plan_without_an_offer_advises_works(said: Said, remedy: str) -> None:
    assert run(f"plan chat.jsonl.gz --limit 40 {SPLIT} {remedy}".split()) == 0
