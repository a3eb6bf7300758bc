"""``kvsim cache``: the command as a user meets it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from kvsim.caching import accesses_of
from kvsim.caching.capacity import Units, read_capacity
from kvsim.caching.figures import draw_hits
from kvsim.caching.study import Bound, Row, Study
from kvsim.cli.app import run
from kvsim.core import Request
from kvsim.errors import ConfigError

UNITS = Units(block_size=16, distinct_blocks=5_000, block_bytes=2 * 1024**2)


@pytest.fixture
def chat(root: Path) -> str:
    return str(root / "traces" / "chat.jsonl.gz")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert run(["cache", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("6400blocks", 6_400),
        ("6400", 6_400),
        ("1GiB", 512),
        ("1.5 GiB", 768),
        ("4194304B", 2),
        ("3Mtokens", 187_500),
        ("2kblocks", 2_000),
        ("10%", 500),
        ("inf", math.inf),
    ],
)
def test_a_capacity_is_written_in_blocks_tokens_bytes_or_percent(text: str, blocks: float) -> None:
    assert read_capacity(text, UNITS).blocks == blocks


@pytest.mark.parametrize("text", ["", "lots", "-1GiB", "1GiBs", "0", "1B", "nan", "1e9"])
def test_what_is_no_capacity_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--capacities .*accepted: "):
        read_capacity(text, UNITS)


def test_the_table_has_a_row_for_each_capacity_and_a_column_for_each_policy(
    chat: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cache", chat, "--capacities", "200blocks,inf", "--policies", "lru,sieve"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["capacity", "blocks", "lru", "sieve", "optimum", "(bound)"]
    assert [line.split()[0] for line in lines[2:4]] == ["200blocks", "inf"]


def test_json_has_rates_counts_bounds_and_the_reuse(
    chat: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = printed(capsys, chat, "--capacities", "1GiB,10%,inf", "--policies", "lru,fifo")
    assert len(found["rows"]) == 6
    for row in found["rows"]:
        assert row["hit_tokens"] <= row["usable_hit_blocks"] * found["block_size"]
        assert row["usable_hit_blocks"] <= row["any_hit_blocks"]
        assert row["token_hit_rate"] == row["hit_tokens"] / found["prompt_tokens"]
    by_kind = [(bound["bound"], bound["capacity"]) for bound in found["bounds"]]
    assert by_kind == [("optimal-offline", "1GiB"), ("optimal-offline", "10%"), ("infinite", "inf")]
    unlimited = [row["hit_tokens"] for row in found["rows"] if row["capacity"] == "inf"]
    assert unlimited == [found["bounds"][-1]["hit_tokens"]] * 2
    gib = next(row for row in found["rows"] if row["capacity"] == "1GiB")
    assert gib["capacity_tokens"] == 1024**3 // 131_072  # bytes a token of Llama-3-8B
    assert found["reuse"]["sharing"]["within"] > 0


def test_the_conversation_trace_is_as_published(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mooncake: 75.8 % of blocks are used once, one 12,031 times; the KVCache study's measure of skew."""
    trace = str(shared / "traces" / "mooncake" / "conversation_trace.jsonl.gz")
    found = printed(capsys, trace, "--partial-blocks", "keep", "--policies", "lru")
    assert found["reuse"]["used_once"] == pytest.approx(0.758, abs=0.0005)
    assert found["reuse"]["most_uses"] == 12_031
    assert found["reuse"]["reuses_of_top_tenth"] == pytest.approx(0.751, abs=0.001)
    shares = [row["any_block_hit_rate"] for row in found["rows"]]
    published = {0: 0.052, 2: 0.195, 3: 0.278, 5: 0.363}  # at 1, 5, 10 and 50 % of all blocks
    for at, share in published.items():
        assert shares[at] == pytest.approx(share, abs=0.005)


def test_hits_are_worth_gpu_hours_latency_and_dollars(
    chat: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = printed(capsys, chat, "--capacities", "1%,inf", "--policies", "lru", "--gpu", "h200")
    cost, (small, large) = found["token_cost"], found["savings"]
    hits = found["rows"][1]["hit_tokens"]
    assert large["gpu_hours"] == pytest.approx(hits * cost["seconds"] / 3600)
    assert large["usd"] == pytest.approx(large["gpu_hours"] * cost["usd_per_gpu_hour"])
    assert large["mean_ttft_ms"] == pytest.approx(1e3 * hits * cost["seconds"] / found["requests"])
    assert small["usd"] < large["usd"]


def test_options_of_a_policy_are_set_by_its_name(
    chat: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (chat, "--capacities", "100blocks", "--policies", "length-aware")
    early = printed(capsys, *asked)["rows"][0]
    late = printed(capsys, *asked, "--set", "length-aware.keep=late")["rows"][0]
    assert early["hit_tokens"] > late["hit_tokens"]


def test_figures_are_drawn_for_what_the_trace_has(
    chat: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "figures"
    printed(capsys, chat, "--capacities", "5%", "--plots", str(folder))
    assert {path.stem for path in folder.iterdir()} == {
        "hits_by_capacity", "popularity", "reuse_distance", "reuse_time", "sharing", "working_set",
    }  # fmt: skip
    bare = tmp_path / "bare.jsonl"
    bare.write_text('{"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": [1]}\n')
    printed(capsys, str(bare), "--plots", str(tmp_path / "few"), "--hash-block", "4")
    assert {p.stem for p in (tmp_path / "few").iterdir()} == {"hits_by_capacity", "popularity"}
    bare.write_text('{"timestamp": 0, "input_length": 9, "output_length": 2}\n')
    found = printed(capsys, str(bare), "--plots", str(tmp_path / "none"), "--block-size", "4")
    assert found["reuse"]["used_once"] is None
    assert [p.stem for p in (tmp_path / "none").iterdir()] == ["hits_by_capacity"]


def test_every_policy_has_a_line_of_its_own() -> None:
    """However many there are."""
    names = [f"policy{number}" for number in range(20)]
    rows = [
        Row(name, str(at), at, at, at, 0.1, at, 0.1, at, 0.1) for name in names for at in (1, 2)
    ]
    accesses = accesses_of([Request(0, 0.0, 9, 2, [1], 4)])
    axes = Figure().subplots()
    bound = Bound("infinite", "inf", None, 0, 0.1, 0, 0.1)
    draw_hits(axes, accesses, Study(4, 1, 9, 1, 1, rows, [bound]))
    drawn = {line.get_label(): line for line in axes.lines}
    looks = {(drawn[n].get_color(), drawn[n].get_linestyle(), drawn[n].get_marker()) for n in names}
    assert len(looks) == len(names)


def test_who_shares_with_whom_is_said_of_tenants_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = '{"arrival": %d, "prompt_tokens": 9, "output_tokens": 2, "hash_ids": [1, 2], "hash_block": 4, "tenant": "%s"}\n'
    trace = tmp_path / "two.jsonl"
    trace.write_text("".join(row % pair for pair in enumerate("aab")))
    reuse = printed(capsys, str(trace), "--plots", str(tmp_path / "figures"))["reuse"]
    assert reuse["sharing"] is None
    assert reuse["sharing_of_tenants"] == {
        "within": 2, "across": 2, "edges": [["a", "a", 2], ["a", "b", 2]],
    }  # fmt: skip
    assert (tmp_path / "figures" / "sharing_of_tenants.png").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--policies", "lruu"], "did you mean 'lru'?"),
        (["--policies", ","], "names nothing"),
        (["--set", "lru.k=2"], "unknown option 'k'"),
        (["--set", "arc=2"], "sets no policy's option"),
        (["--policies", "ttl", "--set", "ttl.ttl=-3"], "ttl is -3"),
        (["--partial-blocks", "maybe"], "accepted: drop, keep"),
        (["--capacities", "12parsecs"], "is not a capacity"),
        (["--model", "no-such"], "no-such"),
        (["--kv-cache-dtype", "no-such"], "no-such"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    chat: str, arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cache", chat, *arguments]) == 2
    captured = capsys.readouterr()
    assert named in captured.err
    assert len(captured.err.splitlines()) == 1
    assert not captured.out
