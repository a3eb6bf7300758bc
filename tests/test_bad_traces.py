"""Nothing a file can hold brings a traceback: one line says what is wrong and what is accepted."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvsim.errors import ConfigError, KvsimError, TraceError
from kvsim.workload import TraceOptions, open_trace
from kvsim.workload.order import WINDOW
from kvsim.workload.readers import READERS

Write = Callable[[str, str], Path]

MOONCAKE = {"timestamp": 0, "input_length": 700, "output_length": 9, "hash_ids": [0, 1]}
KVSIM = {"arrival": 0.0, "prompt_tokens": 700, "output_tokens": 9, "hash_ids": [0, 1]}
BAILIAN = {
    "chat_id": 7, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 30, "output_length": 9,
    "type": "text", "turn": 1, "hash_ids": [4, 5],
}  # fmt: skip
CUSTOM = {"prompt": "What is the capital of India?", "output_tokens": 10}
AGENTIC_TURN = {"t": 0.0, "type": "n", "in": 130, "out": 9, "hash_ids": [1, 2], "think_time": 0.0}
TIMED = {"timestamp": 0.5, "input_length": 64, "output_length": 9, "hash_ids": [1, 2, 3, 4]}

ROWS = {"mooncake": MOONCAKE, "kvsim": KVSIM, "bailian": BAILIAN, "vllm-custom": CUSTOM,
        "timed-trace": TIMED}  # fmt: skip
NUMBERS = [-1, math.nan, math.inf, -math.inf, 1e308, 2**70, True, "12", "", [], {}, [1]]
COUNTS = [*NUMBERS, 0, 1.5, None, 10**10]

BAD_VALUES = [
    *(("mooncake", f, v) for f in ("input_length", "output_length") for v in COUNTS),
    *(("kvsim", f, v) for f in ("prompt_tokens", "output_tokens") for v in COUNTS),
    *(("bailian", f, v) for f in ("input_length", "output_length") for v in COUNTS),
    *(("timed-trace", f, v) for f in ("input_length", "output_length") for v in COUNTS),
    *(("vllm-custom", "output_tokens", v) for v in COUNTS),
    *((f, t, v) for f, t in (("mooncake", "timestamp"), ("timed-trace", "timestamp"),
                             ("bailian", "timestamp"), ("kvsim", "arrival"))
      for v in [*NUMBERS, None]),
    *((f, "hash_ids", v) for f in ("mooncake", "kvsim", "bailian", "timed-trace")
      for v in (3, "ab", {}, True, [1.5], [-1], [True], [None], [[1]], [math.nan], [2**70],
                list(range(99)))),
    *(("bailian", f, v) for f in ("chat_id", "parent_chat_id") for v in (1.5, "x", None, True, [])),
    *(("vllm-custom", "prompt", v) for v in (5, "", None, ["a"])),
    *(("kvsim", "hash_block", v) for v in (0, -1, 1.5, "16", "", True)),
    *(("kvsim", "session", v) for v in (1.5, "", [], True)),
    *(("kvsim", "think_time", v) for v in (-1, math.nan, "1", True, 1e9)),
    *(("mooncake", "block_size", v) for v in (0, -1, 1.5, "16", None, True)),
]  # fmt: skip


def read(path: Path, **options: object) -> list[object]:
    return list(open_trace(path, TraceOptions(**options)))  # type: ignore[arg-type]


def message(path: Path, **options: object) -> str:
    """What the user is told about a trace that cannot be read: one line."""
    with pytest.raises(TraceError) as caught:
        read(path, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


def jsonl(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(("format_name", "field", "value"), BAD_VALUES, ids=str)
def test_a_bad_value_is_named_with_its_file_line_and_field(
    write: Write, format_name: str, field: str, value: object
) -> None:
    good = ROWS[format_name]
    later = {**good, "chat_id": 8} if format_name == "bailian" else good
    path = write("trace.jsonl", jsonl(good, {**later, field: value}))

    text = message(path, format=format_name)

    assert text.startswith(f"{path}:2: field '")
    assert "; accepted: " in text
    assert f"'{field}" in text


@pytest.mark.parametrize(
    ("format_name", "field"),
    [(name, field) for name, row in ROWS.items() for field in row
     if field not in ("hash_ids", "type", "turn")],
)  # fmt: skip
def test_a_missing_field_is_named(write: Write, format_name: str, field: str) -> None:
    good = ROWS[format_name]
    later = {**good, "chat_id": 8} if format_name == "bailian" else good
    short = {name: value for name, value in later.items() if name != field}
    text = message(write("trace.jsonl", jsonl(good, short)), format=format_name)
    assert f":2: field '{field}' is missing; accepted: " in text


@pytest.mark.parametrize("format_name", ROWS)
@pytest.mark.parametrize(
    "line",
    ["{", '{"timestamp": 0, "input_le', "# a comment", "null", "[1, 2]", "5", '"text"', "NaN",
     "[" * 5000, "{'timestamp': 0}", "\ufffd\x01", '{"a": 1e999999}x', "9" * 5000],
)  # fmt: skip
def test_a_line_that_is_no_object_is_named_or_skipped(
    write: Write, format_name: str, line: str
) -> None:
    path = write("trace.jsonl", jsonl(ROWS[format_name]) + line + "\n")

    assert message(path, format=format_name).startswith(f"{path}:2: ")
    trace = open_trace(path, TraceOptions(format=format_name, on_bad_row="skip"))
    assert len(list(trace)) == 1
    assert trace.skipped == 1
    assert f"{path}:2: " in trace.quirks[-1]


CSV = {
    "azure": ("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:17:03.9799600,4808,10"),
    "burstgpt": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "5,ChatGPT,472,18,490,Conversation log",
    ),
    "lengths": (
        "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio",
        "74,918,992,0.08",
    ),
}
CSV_ROWS = [
    ("azure", "2023-11-16 18:17:04.0,,10", "'ContextTokens' is empty"),
    ("azure", "2023-11-16 18:17:04.0,0,10", "'ContextTokens' is '0'"),
    ("azure", "2023-11-16 18:17:04.0,-5,10", "'ContextTokens' is '-5'"),
    ("azure", "2023-11-16 18:17:04.0,nan,10", "'ContextTokens' is 'nan'"),
    ("azure", "2023-11-16 18:17:04.0,1e3,10", "'ContextTokens' is '1e3'"),
    ("azure", "2023-11-16 18:17:04.0,99999999999999,10", "'ContextTokens' is '999"),
    ("azure", "2023-11-16 18:17:04.0,10,٣", "'GeneratedTokens' is"),
    ("azure", "2023-11-16 18:17:04.0,10,1_0", "'GeneratedTokens' is '1_0'"),
    ("azure", "2023-11-16 18:17:04.0,10,0", "'GeneratedTokens' is '0'"),
    ("azure", "2023-11-16 18:17:04.0,10", "has 2 fields; accepted: 3"),
    ("azure", "2023-11-16 18:17:04.0,10,10,10", "has 4 fields; accepted: 3"),
    ("azure", "2023-11-16 18:1", "has 1 field; accepted: 3"),
    ("azure", "2023-13-45 18:17:04.0,10,10", "'TIMESTAMP' is '2023-13-45"),
    ("azure", "18:17:04,10,10", "'TIMESTAMP' is '18:17:04'"),
    ("azure", "12345,10,10", "'TIMESTAMP' is '12345'"),
    ("azure", ",10,10", "'TIMESTAMP' is ''"),
    ("azure", "1999-11-16 18:17:04.0,10,10", "'TIMESTAMP' is"),
    ("azure", "2023-11-16 18:17:04.0+25:00,10,10", "'TIMESTAMP' is"),
    ("burstgpt", "nan,ChatGPT,1,1,2,API log", "'Timestamp' is 'nan'"),
    ("burstgpt", "-5,ChatGPT,1,1,2,API log", "'Timestamp' is '-5'"),
    ("burstgpt", "inf,ChatGPT,1,1,2,API log", "'Timestamp' is inf"),
    ("burstgpt", "1e300,ChatGPT,1,1,2,API log", "'Timestamp' is 1e+300"),
    ("burstgpt", "abc,ChatGPT,1,1,2,API log", "'Timestamp' is 'abc'"),
    ("burstgpt", "6,ChatGPT,-1,1,2,API log", "'Request tokens' is '-1'"),
    ("burstgpt", "6,ChatGPT,1,x,2,API log", "'Response tokens' is 'x'"),
    ("burstgpt", '6,"Chat,GPT,1,1,2,API log', "has 2 fields"),
    ("lengths", "0,5,5,0", "'num_prefill_tokens' is '0'"),
    ("lengths", "5,0,5,0", "'num_decode_tokens' is '0'"),
    ("lengths", "5,1.5,5,0", "'num_decode_tokens' is '1.5'"),
]


@pytest.mark.parametrize(("format_name", "row", "seen"), CSV_ROWS)
def test_a_bad_cell_is_named_with_its_file_line_and_column(
    write: Write, format_name: str, row: str, seen: str
) -> None:
    header, good = CSV[format_name]
    path = write("trace.csv", f"{header}\n{good}\n{row}\n")

    text = message(path)

    assert text.startswith(f"{path}:3: ")
    assert seen in text
    assert "; accepted: " in text
    assert len(read(path, on_bad_row="skip")) == 1


@pytest.mark.parametrize("format_name", CSV)
def test_a_missing_column_is_named(write: Write, format_name: str) -> None:
    header, good = CSV[format_name]
    needed = {"azure": 2, "burstgpt": 3, "lengths": 1}[format_name]
    columns, cells = header.split(","), good.split(",")
    lost = columns.pop(needed)
    cells.pop(needed)
    path = write("t.csv", ",".join(columns) + "\n" + ",".join(cells) + "\n")
    assert f"t.csv:1: field {lost!r} is missing" in message(path, format=format_name)


@pytest.mark.parametrize("format_name", CSV)
@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n\n"])
def test_a_header_without_rows_is_no_trace(write: Write, format_name: str, end: str) -> None:
    path = write("t.csv", CSV[format_name][0] + end)
    assert message(path) == f"{path}: has no requests; accepted: at least one"


@pytest.mark.parametrize("format_name", [None, *READERS])
@pytest.mark.parametrize(
    "content", [b"", b"\n", b"\r\n \n", b"\xef\xbb\xbf", b"\x1f\x8b", b"{}", b"[]", b"[1]"]
)
def test_a_file_with_nothing_in_it_is_refused_in_one_line(
    tmp_path: Path, format_name: str | None, content: bytes
) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(content)
    assert message(path, format=format_name).startswith(str(path))


@pytest.mark.parametrize("format_name", [None, *READERS])
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@example(content=b"PAR1")
@example(content=b"PAR1\0\0\0\0PAR1")
@example(content=b"\0\0\0\0")
@example(content=gzip.compress(b"\xff\xd8\xff\xe0" * 40))
@example(content=gzip.compress(b'{"timestamp": 0}' * 40)[:-4])
@example(content=b'{"requests": [{"type": "subagent"}]}')
@example(content=b'{"requests": [5, null, {"in": 1}], "block_size": 0}')
@example(content=b'[{"conversations": [1, 2]}, 5, {"conversations": 3}, {}]')
@example(content=b'[{"conversations": [{"value": "a"}, {"value": "b')
@example(content=b'{"requests": 1, "tool_tokens": 5}')
@settings(max_examples=60, deadline=None)
def test_no_content_brings_anything_but_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, format_name: str | None, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "trace"
    path.write_bytes(content)
    for on_bad_row in ("error", "skip"):
        with contextlib.suppress(TraceError):
            read(path, format=format_name, on_bad_row=on_bad_row)


@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                name: st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
                | st.lists(st.integers(-2, 9), max_size=4)
                for name in (*MOONCAKE, *KVSIM, *BAILIAN, "session_id", "delay", "session",
                             "think_time", "id", "block_size", "hash_block", "blocks", "prompt",
                             "output", "block_tokens")
            },
        ),
        min_size=1, max_size=4,
    ),
    format_name=st.sampled_from(["kvsim", "mooncake", "bailian", "timed-trace"]),
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_what_is_accepted_can_be_simulated(
    tmp_path_factory: pytest.TempPathFactory, rows: list[object], format_name: str
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "trace.jsonl"
    path.write_text(jsonl(*rows))
    try:
        requests = list(open_trace(path, TraceOptions(format=format_name, on_bad_row="skip")))
    except TraceError:
        return
    begun = set()
    for row, request in enumerate(requests):
        assert request.row == row
        assert request.prompt_tokens > 0
        assert request.output_tokens > 0
        if request.arrival is None:
            assert request.session in begun
            assert request.think_time is not None
        else:
            assert 0 <= request.arrival < math.inf
        begun.add(request.session)
        if request.hash_ids is not None:
            assert (len(request.hash_ids) - 1) * request.hash_block < request.prompt_tokens


def test_missing_files_and_foreign_files_are_told_apart(tmp_path: Path, write: Write) -> None:
    assert "no such file" in message(tmp_path / "absent.jsonl")
    assert "is a directory" in message(tmp_path)
    (tmp_path / "sub.json").mkdir()
    assert "is a directory" in message(tmp_path)
    for name, start, kind in (
        ("a.zip", b"PK\x03\x04rest", "a zip archive"),
        ("a.zst", b"\x28\xb5\x2f\xfdrest", "zstd-compressed"),
        ("a.txt", '{"timestamp": 0}'.encode("utf-16"), "UTF-16 text"),
        ("a.png", b"\x89PNG\r\n\x1a\n\0\0\0", "is binary"),
    ):
        (tmp_path / name).write_bytes(start)
        assert kind in message(tmp_path / name)
    assert "format not recognised" in message(
        write("a.md", "# Title\n\nSome prose, with commas.\n")
    )
    assert "mooncake, timed-trace" in message(write("b.md", "hello\n"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_says_so(write: Write) -> None:
    path = write("t.jsonl", jsonl(MOONCAKE))
    path.chmod(0)
    assert "permission denied" in message(path)


def test_a_path_that_no_system_has_is_refused() -> None:
    assert "accepted" in message(Path("a\0b"))
    assert "accepted" in message(Path("x" * 300))


def test_compressed_data_that_end_early_or_are_damaged_say_so(tmp_path: Path) -> None:
    whole = gzip.compress(jsonl(*[{**MOONCAKE, "timestamp": t} for t in range(5000)]).encode())
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    assert "the gzip data end early" in message(path)
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 0xFF
    path.write_bytes(broken)
    assert str(path) in message(path)


def test_a_last_line_cut_short_says_so(write: Write) -> None:
    cut = jsonl(MOONCAKE, MOONCAKE)[:-20]
    assert "(the file ends inside this line)" in message(write("t.jsonl", cut))


@pytest.mark.parametrize("wrap", ["{}", "\ufeff{}"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", "  \r\n\r\n"])
def test_line_ends_blank_lines_and_byte_order_marks_do_not_matter(
    write: Write, wrap: str, end: str
) -> None:
    for name, rows in (
        ("kvsim", [json.dumps(KVSIM)] * 2),
        ("mooncake", [json.dumps(MOONCAKE)] * 2),
        ("azure", [*CSV["azure"], CSV["azure"][1]]),
    ):
        text = wrap.format(end.join(rows)) + end
        path = write(f"{name}.txt", text.replace("\r\n", "\n") if os.linesep == "\r\n" else text)
        trace = open_trace(path)
        assert trace.format == name
        assert len(list(trace)) == 2


def test_a_wrong_ending_of_the_name_does_not_matter(tmp_path: Path) -> None:
    for name in ("t.csv", "t.gz", "t.parquet", "t.json", "t"):
        (tmp_path / name).write_text(jsonl(MOONCAKE))
        assert open_trace(tmp_path / name).format == "mooncake"
    (tmp_path / "t.jsonl").write_bytes(gzip.compress(jsonl(MOONCAKE).encode()))
    assert len(list(open_trace(tmp_path / "t.jsonl"))) == 1


def test_a_row_of_a_million_ids_is_read_or_refused_in_one_line(write: Write) -> None:
    ids = list(range(1_000_000))
    path = write("t.jsonl", jsonl({**MOONCAKE, "hash_ids": ids}))
    assert "is 1,000,000 ids of 512 tokens; accepted: at most 2" in message(path)
    fits = {**MOONCAKE, "input_length": 512_000_000, "hash_ids": ids}
    (request,) = open_trace(write("t.jsonl", jsonl(dict(sorted(fits.items())))))
    assert list(request.hash_ids or ()) == ids


@pytest.mark.parametrize(("row", "field"), [({**KVSIM, "id": "a"}, "id"), (BAILIAN, "chat_id")])
def test_an_id_given_twice_is_refused(write: Write, row: dict[str, object], field: str) -> None:
    text = message(write("t.jsonl", jsonl(row, row)))
    assert f":2: field {field!r} is" in text
    assert "that no earlier row has" in text


def test_a_turn_of_a_session_that_has_not_begun_is_refused(write: Write) -> None:
    turn = {"prompt_tokens": 5, "output_tokens": 5, "session": "a", "think_time": 1.0}
    text = message(write("t.jsonl", jsonl({**turn, "arrival": 0, "session": "b"}, turn)))
    assert ":2: field 'arrival' is missing" in text
    delayed = {**MOONCAKE, "session_id": "a", "delay": 5}
    del delayed["timestamp"]
    assert ":1: field 'timestamp' is missing" in message(write("m.jsonl", jsonl(delayed)))


def test_rows_far_out_of_order_are_refused_with_the_remedy(write: Write) -> None:
    times = [*range(10, WINDOW + 20), 5]
    path = write("t.jsonl", jsonl(*({**KVSIM, "arrival": t} for t in times)))
    text = message(path)
    assert text.startswith(f"{path}:{len(times)}: the row is ")
    assert "kvsim trace convert --sort" in text
    assert [r.arrival for r in open_trace(path, TraceOptions(sort=True))] == sorted(times)


def test_when_every_row_is_bad_the_first_is_shown(write: Write) -> None:
    path = write("t.jsonl", jsonl(*[{**MOONCAKE, "input_length": 0}] * 3))
    text = message(path, on_bad_row="skip")
    assert "has no usable row, 3 were skipped; the first: " in text
    assert f"{path}:1: field 'input_length' is 0" in text


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"request_rate": -1.0}, "--request-rate"), ({"request_rate": 0.0}, "--request-rate"),
        ({"request_rate": math.nan}, "--request-rate"), ({"speedup": 0.0}, "--speedup"),
        ({"speedup": math.inf}, "--speedup"), ({"speedup": math.nan}, "--speedup"),
        ({"limit": 0}, "--limit"), ({"limit": 1.5}, "--limit"), ({"limit": True}, "--limit"),
        ({"start": -1.0}, "--start"), ({"start": math.nan}, "--start"),
        ({"duration": 0.0}, "--duration"), ({"duration": math.nan}, "--duration"),
        ({"burstiness": 0.0, "arrival": "gamma"}, "--burstiness"),
        ({"burstiness": math.nan, "arrival": "gamma"}, "--burstiness"),
        ({"burstiness": 0.5}, "--burstiness"), ({"arrival": "weibull"}, "--arrival"),
        ({"on_bad_row": "ignore"}, "--on-bad-row"), ({"seed": -1}, "--seed"),
        ({"hash_block": 0}, "--hash-block"), ({"think_time_cap": -1.0}, "--think-time-cap"),
        ({"speedup": 2.0, "request_rate": 2.0}, "--speedup"),
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_meant_is_refused(options: dict[str, object], flag: str) -> None:
    with pytest.raises(ConfigError, match="accepted") as caught:
        TraceOptions(**options)  # type: ignore[arg-type]
    assert str(caught.value).startswith(flag)


def test_options_that_a_format_cannot_follow_are_refused(write: Write) -> None:
    azure = write("t.csv", "\n".join(CSV["azure"]))
    with pytest.raises(ConfigError, match="--hash-block does not apply to the format azure"):
        open_trace(azure, TraceOptions(hash_block=16))
    with pytest.raises(ConfigError, match="did you mean 'mooncake'"):
        TraceOptions(format="moncake")
    with pytest.raises(ConfigError, match="without --request-rate"):
        open_trace(write("l.csv", "\n".join(CSV["lengths"])), TraceOptions(arrival="poisson"))
    with pytest.raises(ConfigError, match="arrive at one instant"):
        list(open_trace(azure, TraceOptions(request_rate=2.0)))
    with pytest.raises(TraceError, match="--start and --duration"):
        list(open_trace(azure, TraceOptions(start=5.0)))


def test_standard_input_is_named_in_complaints(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(jsonl(MOONCAKE, {**MOONCAKE, "input_length": 0}).encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert message(Path("-")).startswith("stdin:2: field 'input_length' is 0")


def test_an_agentic_turn_is_named_by_its_place(write: Write) -> None:
    def file(*turns: object) -> Path:
        return write("a.json", json.dumps({"id": "x", "block_size": 64, "requests": turns}))

    nested = {"type": "subagent", "requests": [AGENTIC_TURN, {**AGENTIC_TURN, "in": 0}]}
    assert "a.json:requests[1].requests[1]: field 'in' is 0" in message(file(AGENTIC_TURN, nested))
    assert "a.json:requests[1]: the turn is 5" in message(file(AGENTIC_TURN, 5))
    late = {**AGENTIC_TURN, "think_time": -1}
    assert "a.json:requests[1]: field 'think_time' is -1" in message(file(AGENTIC_TURN, late))
    assert len(read(file(AGENTIC_TURN, late, AGENTIC_TURN), on_bad_row="skip")) == 2
    assert "has no requests" in message(file())


@pytest.mark.parametrize("depth", [100, 500, 5000])
def test_sub_agents_of_sub_agents_without_end_do_no_harm(write: Write, depth: int) -> None:
    start = '{"tool_tokens": 1, "requests": [' + '{"type": "subagent", "requests": [' * depth
    path = write("a.json", start + json.dumps(AGENTIC_TURN) + "]}" * (depth + 1))
    with contextlib.suppress(TraceError):
        assert len(read(path)) == 1


def test_errors_can_be_built_again_from_their_arguments(write: Write) -> None:
    with pytest.raises(KvsimError) as caught:
        read(write("t.jsonl", "{"))
    assert str(type(caught.value)(*caught.value.args)) == str(caught.value)
