"""``kvsim trace info | convert | generate`` as a user meets them."""

from __future__ import annotations

import gzip
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvsim.cli.app import run
from kvsim.core import Request
from kvsim.errors import ConfigError
from kvsim.workload import open_trace, write_trace
from tests.oracles.workloads import listed

Write = Callable[[str, str], Path]
SAMPLES = Path(__file__).resolve().parent.parent / "traces"
COMMANDS = re.findall(r"`kvsim trace (generate (\S+) [^`]*)`", (SAMPLES / "README.md").read_text())


def rows(*times: float, field: str = "timestamp") -> str:
    lengths = (
        {"input_length": 700, "output_length": 5}
        if field == "timestamp"
        else {"prompt": 700, "output": 5}
    )
    return "".join(json.dumps({field: time, **lengths}) + "\n" for time in times)


def info(path: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, object]:
    assert run(["trace", "info", str(path), "--json", *flags]) == 0
    out: dict[str, object] = json.loads(capsys.readouterr().out)
    return out


@pytest.mark.parametrize(("command", "name"), COMMANDS, ids=[name for _, name in COMMANDS])
def test_a_shipped_sample_is_what_its_command_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["trace", *command.split()]) == 0
    made, shipped = tmp_path / name, SAMPLES / name
    assert gzip.decompress(made.read_bytes()) == gzip.decompress(shipped.read_bytes())
    assert shipped.stat().st_size < 150_000


def test_every_sample_is_listed_and_reads_without_a_quirk() -> None:
    listed = {name for _, name in COMMANDS}
    assert listed == {path.name for path in SAMPLES.iterdir()} - {"README.md"}
    for name in listed:
        trace = open_trace(SAMPLES / name)
        assert sum(1 for _ in trace) >= 250
        assert trace.quirks == []


def test_info_shows_a_table_or_json(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write("t.jsonl", rows(0, 250, 1000))
    assert run(["trace", "info", str(path)]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"requests +3\n", shown)
    assert re.search(r"rate +2\.000/s", shown)
    summary = info(path, capsys)
    assert summary["requests"] == 3
    assert summary["prompt_tokens"]["mean"] == 700  # type: ignore[index]
    assert summary["arrivals"]["cv"] == pytest.approx(0.5)  # type: ignore[index]


def test_ideal_reuse_counts_blocks_from_the_start_and_after_the_same_blocks(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    def row(*ids: int, tokens: int) -> str:
        blocks = list(ids)
        return json.dumps(
            {"arrival": 0, "prompt": tokens, "output": 1, "blocks": blocks, "block_tokens": 10}
        )

    path = write("t.jsonl", "\n".join([
        row(1, 2, 3, tokens=30), row(1, 2, 4, tokens=30), row(9, 2, 3, tokens=30),
        row(1, 2, 3, 5, tokens=38), row(1, 2, tokens=15),
    ]))  # fmt: skip
    prefix = info(path, capsys)["prefix"]
    assert prefix == {
        "blocks": 15, "block_hits": 7, "block_hit_ratio": 7 / 15, "distinct_blocks": 8,
        "token_hits": 60, "token_hit_ratio": 60 / 143,
    }  # fmt: skip


def test_times_in_the_wrong_unit_are_suspected(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = write("s.jsonl", rows(0, 1, 1, 2))
    assert "may be seconds, not ms" in str(info(seconds, capsys)["suspicions"])
    assert info(seconds, capsys, "--speedup", "0.001")["suspicions"] == []
    milliseconds = write("ms.jsonl", rows(0, 400, 900, field="arrival"))
    assert "may be milliseconds" in str(info(milliseconds, capsys)["suspicions"])
    assert info(milliseconds, capsys, "--speedup", "1000")["suspicions"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "seen"),
    [
        (["info", "absent.jsonl"], 3, "absent.jsonl: no such file"),
        (["info", "."], 3, "is a directory"),
        (["info", "bad.jsonl"], 3, "bad.jsonl:2: field 'input_length' is 0"),
        (["info", "bad.jsonl", "--format", "mooncak"], 2, "did you mean 'mooncake'"),
        (["info", "bad.jsonl", "--limit", "0"], 2, "--limit is 0"),
        (["info", "bad.jsonl", "--limit", "x"], 2, "--limit"),
        (["info", "bad.jsonl", "--on-bad-row", "no"], 2, "accepted: error, skip"),
        (["info", "bad.jsonl", "--request-rate", "nan"], 2, "--request-rate is nan"),
        (["info", "bad.jsonl", "--spedup", "2"], 2, "did you mean --speedup"),
        (["convert", "bad.jsonl", "out.jsonl"], 3, "bad.jsonl:2"),
        (["convert", "bad.jsonl", "out.parquet"], 3, "bad.jsonl:2"),
        (["convert", "good.jsonl", "out.csv"], 2, "the ending does not tell"),
        (["convert", "good.jsonl", "out.jsonl", "--to", "xml"], 2, "unknown output format 'xml'"),
        (["convert", "good.jsonl", "no/such/out.jsonl"], 2, "cannot be written"),
        (["convert", "good.jsonl", "dir.jsonl"], 2, "is a directory"),
        (["generate", "out.jsonl", "--preset", "chat"], 2, "unknown preset 'chat'"),
        (["generate", "out.jsonl", "--prompt", "normal:3"], 2, "unknown distribution 'normal'"),
        (["generate", "out.jsonl", "--rate", "-1"], 2, "--rate is -1"),
        (["generate", "out.jsonl", "--requests", "0"], 2, "--requests is 0"),
        (["generate", "out.jsonl", "--arrival", "gamma:nan"], 2, "gamma:nan"),
        (["generate", "out.jsonl", "--seed", "-1"], 2, "--seed is -1"),
        (["generate", "out.jsonl", "--output", "fit:absent"], 3, "absent: no such file"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_exit_code_and_leaves_no_file(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, seen: str,
) -> None:  # fmt: skip
    write("bad.jsonl", rows(0) + rows(1).replace("700", "0"))
    write("good.jsonl", rows(0))
    (tmp_path / "dir.jsonl").mkdir()
    before = sorted(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)

    assert run(["trace", *arguments]) == code

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert seen in captured.err
    assert sorted(tmp_path.iterdir()) == before


def test_skipped_rows_are_counted_for_the_user(
    tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("t.jsonl", rows(0) + "{oops\n" + rows(5))
    assert info(path, capsys, "--on-bad-row", "skip")["skipped"] == 1
    out = str(tmp_path / "o.jsonl")
    assert run(["trace", "convert", str(path), out, "--on-bad-row", "skip"]) == 0
    assert "1 bad rows skipped; the first: " in capsys.readouterr().err


def test_convert_writes_every_format_and_sorts_on_request(tmp_path: Path, write: Write) -> None:
    path = write("t.jsonl", "".join(rows(3000 - time) for time in range(2500)))
    assert run(["trace", "convert", str(path), str(tmp_path / "o.jsonl")]) == 3
    for name, flags in (("o.jsonl.gz", []), ("o.parquet", []), ("o.txt", ["--to", "mooncake"])):
        out = tmp_path / name
        assert run(["trace", "convert", str(path), str(out), "--sort", *flags]) == 0
        arrivals = [request.arrival for request in open_trace(out)]
        assert arrivals == [(501 + time) / 1000 for time in range(2500)]


def test_mooncake_output_keeps_sessions_and_block_sizes(tmp_path: Path) -> None:
    requests = [
        Request(0, 0.5, 700, 5, [1, 2], 512),
        Request(1, 1.0, 100, 5, list(range(7)), 16, "s"),
        Request(2, None, 130, 5, list(range(9)), 16, "s", 2.5),
    ]
    write_trace(requests, str(tmp_path / "t.jsonl"), "mooncake")
    assert listed(open_trace(tmp_path / "t.jsonl")) == requests


def test_an_interrupted_conversion_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    def interrupted() -> Iterator[Request]:
        yield from (Request(i, float(i), 5, 5) for i in range(10_000))
        raise KeyboardInterrupt

    for name in ("t.jsonl", "t.jsonl.gz", "t.parquet"):
        target = tmp_path / name
        target.write_text("old")
        with pytest.raises(KeyboardInterrupt):
            write_trace(interrupted(), str(target))
        assert target.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 3


def test_equal_traces_are_equal_bytes_whatever_the_file_is_called(tmp_path: Path) -> None:
    requests = [Request(i, i / 3, 5, 5, [i], 16) for i in range(100)]
    for ending in (".jsonl", ".jsonl.gz", ".parquet"):
        for name in ("a", "b"):
            write_trace(requests, str(tmp_path / (name + ending)))
        assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()


def test_traces_pass_through_pipes(
    write: Write, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(rows(0, 5).encode())))
    assert run(["trace", "convert", "-", "-"]) == 0
    piped = write("t.jsonl", capsysbinary.readouterr().out.decode())
    assert [request.arrival for request in open_trace(piped)] == [0.0, 0.005]


def test_reading_a_trace_loads_neither_numpy_nor_arrow_nor_pandas(write: Write) -> None:
    path = write("t.jsonl", rows(0, 5))
    code = (
        "import sys, kvsim.cli.trace, kvsim.workload as w; list(w.open_trace(sys.argv[1]));"
        "print([m for m in ('numpy', 'pyarrow', 'pandas', 'matplotlib') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=True)
    assert ran.stdout.strip() == b"[]"


def test_an_unknown_place_to_write_is_refused_before_anything_is_read() -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        write_trace(iter(()), "a\0b.jsonl")
