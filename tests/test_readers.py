"""Every trace format, from small rows written here and from the real traces."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import sys
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.core import Request
from kvsim.workload import Trace, TraceOptions, open_trace, summarise, write_trace
from kvsim.workload.ledger import Ledger
from kvsim.workload.order import WINDOW, in_time_order
from kvsim.workload.readers import READERS
from tests.oracles.workloads import listed

Write = Callable[[str, str], Path]


def jsonl(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def opened(path: Path, **options: object) -> Trace:
    return open_trace(path, TraceOptions(**options))  # type: ignore[arg-type]


def read(path: Path, **options: object) -> list[Request]:
    return listed(opened(path, **options))


# The formats


def test_a_mooncake_row_becomes_a_request_in_seconds(write: Write) -> None:
    row = {"timestamp": 27482, "input_length": 700, "output_length": 52, "hash_ids": [46, 47]}
    path = write("t.jsonl", jsonl(row))
    assert read(path) == [Request(0, 27.482, 700, 52, [46, 47], 512)]
    assert opened(path).format == "mooncake"


def test_mooncake_rows_may_name_their_block_size_and_use_aliases(write: Write) -> None:
    own = {
        "created_time": 10,
        "input_tokens": 30,
        "output_tokens": 5,
        "hash_ids": [1, 2],
        "block_size": 16,
    }
    text = {"timestamp": 20.5, "text_input": "x" * 384, "output_length": 5}
    named = {"timestamp": 30, "input_length": 30, "output_length": 5, "hash_ids": ["a", "b"]}
    trace = opened(write("t.jsonl", jsonl(own, text, named)), hash_block=20)
    first, second, third = listed(trace)
    assert first == Request(0, 0.01, 30, 5, [1, 2], 16)
    assert second == Request(1, 0.0205, 100, 5)
    assert third.hash_block == 20
    assert third.hash_ids is not None
    assert len(set(third.hash_ids)) == 2
    assert any("estimated" in quirk for quirk in trace.quirks)


def test_mooncake_rows_may_say_whose_they_are(write: Write) -> None:
    row = {"timestamp": 0, "input_length": 7, "output_length": 5, "tenant": "acme", "user": 7}
    turn = {**row, "session_id": "s", "tenant": "globex", "user": None}
    rows = read(write("t.jsonl", jsonl(row, turn)))
    assert [r[-2:] for r in rows] == [("acme", "7"), ("globex", None)]
    assert [r.session for r in rows] == [None, "s"]


def test_mooncake_sessions_wait_for_the_turn_before(write: Write) -> None:
    turn = {"input_length": 30, "output_length": 5, "session_id": "a"}
    path = write("t.jsonl", jsonl(
        {**turn, "timestamp": 1000}, {**turn, "delay": 500}, {**turn, "delay_ms": 250.5}, turn,
        {**turn, "timestamp": 9000},
    ))  # fmt: skip
    assert [(r.arrival, r.think_time, r.session) for r in read(path, format="mooncake")] == [
        (1.0, None, "a"), (None, 0.5, "a"), (None, 0.2505, "a"), (None, 0.0, "a"), (9.0, None, "a"),
    ]  # fmt: skip


def test_vllm_timed_traces_are_told_from_mooncake_by_their_blocks(write: Write) -> None:
    row = {"timestamp": 2.5, "input_length": 100, "output_length": 5, "hash_ids": list(range(7))}
    path = write("t.jsonl", jsonl(row))
    assert opened(path).format == "timed-trace"
    assert read(path) == [Request(0, 2.5, 100, 5, list(range(7)), 16)]


@pytest.mark.parametrize("stamp", ["{}", "{}+00:00", "{}Z"])
def test_azure_times_are_exact_to_the_tick_and_start_at_0(write: Write, stamp: str) -> None:
    days = ("2023-11-16 23:59:59.9799601", "2023-11-17 00:00:00.0000001")
    first, second = (stamp.format(day) for day in days)
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    path = write("t.csv", f"{head}{first},4808,10\r\n{second},3180,8\r\n")
    assert read(path) == [Request(0, 0.0, 4808, 10), Request(1, 0.02004, 3180, 8)]


def test_azure_with_images_and_offsets_reads_by_column_name(write: Write) -> None:
    path = write("t.csv", "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
                 "2024-05-10 00:00:00.009930+00:00,1,2162,5\n2024-05-10 02:00:01+02:00,0,7,9\n")  # fmt: skip
    assert [(r.prompt_tokens, r.output_tokens) for r in read(path)] == [(2162, 5), (7, 9)]
    assert read(path)[1].arrival == pytest.approx(0.99007, abs=1e-12)


def test_burstgpt_columns_are_found_by_name_and_failures_left_out(write: Write) -> None:
    part3 = write("3.csv", "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                  "5,,1.5,GPT-4,472,18,490,API log\n7,3b-1,2,ChatGPT,10,20,30,Conversation log\n"
                  "8,,1,GPT-4,10,0,10,API log\n9,,1,GPT-4,0,10,10,API log\n")  # fmt: skip
    trace = opened(part3)
    assert list(trace) == [Request(0, 5.0, 472, 18), Request(1, 7.0, 10, 20, session="3b-1")]
    assert trace.skipped == 0
    assert trace.quirks == ["failed requests (0 response tokens) left out (1×)",
                            "rows with 0 request tokens left out (1×)"]  # fmt: skip


def test_bailian_turns_keep_their_times_and_share_the_session_of_their_root(write: Write) -> None:
    row = {"timestamp": 61.114, "input_length": 40, "output_length": 132, "type": "text", "turn": 1,
           "hash_ids": [1089, 1090, 1091]}  # fmt: skip
    chats = [(55, -1), (159, 55), (160, 159), (7, 999)]
    rows = [{"chat_id": own, "parent_chat_id": parent, **row} for own, parent in chats]
    trace = opened(write("t.jsonl", jsonl(*rows)))
    requests = listed(trace)
    assert [(r.id, r.session) for r in requests] == [
        ("55", "55"), ("159", "55"), ("160", "55"), ("7", "7")]  # fmt: skip
    assert requests[1] == Request(1, 61.114, 40, 132, [1089, 1090, 1091], 16, "55", None, "159")
    assert "begin a session" in trace.quirks[0]


def test_sharegpt_takes_the_first_two_turns_of_an_array_larger_than_a_read(write: Write) -> None:
    def talk(size: int) -> dict[str, object]:
        turns = [{"from": "human", "value": "é" * size}, {"from": "gpt", "value": "x" * 39}]
        return {"id": "a", "conversations": turns}

    talks = [talk(1), {"conversations": []}, talk(3_000_000), talk(384)]
    for indent in (None, 1):
        trace = opened(write("t.json", json.dumps(talks, indent=indent, ensure_ascii=False)))
        assert [(r.prompt_tokens, r.output_tokens) for r in trace] == [
            (1, 11), (781_250, 11), (100, 11)]  # fmt: skip
        assert "fewer than 2 turns" in " ".join(trace.quirks)
    lines = write("t.jsonl", jsonl({"conversation": [{"content": "x" * 40}, {"content": "y"}]}))
    assert read(lines)[0].prompt_tokens == 11


def test_a_trace_without_times_arrives_at_once_unless_a_rate_is_given(write: Write) -> None:
    rows = (
        "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n"
        + "74,918,992,0.08\n" * 500
    )
    trace = opened(write("t.csv", rows))
    assert {r.arrival for r in trace} == {0.0}
    assert "--request-rate" in trace.quirks[0]
    spread = opened(write("t.csv", rows), request_rate=5.0)
    assert [r.arrival for r in spread][-1] == pytest.approx(100, rel=0.2)
    assert spread.quirks == []


def test_prompts_given_as_text_are_estimated(write: Write) -> None:
    trace = opened(write("t.jsonl", jsonl({"prompt": "x" * 384, "output_tokens": 10})))
    assert trace.format == "vllm-custom"
    assert list(trace) == [Request(0, 0.0, 100, 10)]


def agentic(*turns: dict[str, object], name: str = "a", **top: object) -> str:
    return json.dumps(
        {"id": name, "block_size": 64, "hash_id_scope": "local", **top, "requests": turns}
    )


def turn(tokens: int, **more: object) -> dict[str, object]:
    ids = list(range(1, tokens // 64 + 1))
    return {
        "t": 0.0,
        "type": "n",
        "in": tokens,
        "out": 9,
        "hash_ids": ids,
        "think_time": 2.0,
        **more,
    }


def test_agentic_turns_wait_and_sub_agents_stand_in_their_place(write: Write) -> None:
    child = {"type": "subagent", "agent_id": "x", "requests": [turn(70, think_time=500.0)]}
    late = turn(260, t=30.0)
    del late["think_time"]
    text = agentic(turn(130), child, turn(200, out=0, t=10.0, api_time=4.0), late)
    trace = opened(write("a.json", text))
    assert listed(trace) == [
        Request(0, 0.0, 130, 9, [1, 2], 64, "a"),
        Request(1, None, 70, 9, [1], 64, "a", 60.0),
        Request(2, None, 200, 1, [1, 2, 3], 64, "a", 2.0),
        Request(3, None, 260, 9, [1, 2, 3, 4], 64, "a", 16.0),
    ]
    assert len(trace.quirks) == 3
    assert read(write("a.json", text), think_time_cap=1000.0)[1].think_time == 500.0


def test_the_ids_of_two_agentic_files_are_apart_unless_they_are_global(
    tmp_path: Path, write: Write
) -> None:
    for name in ("one", "two"):
        write(f"{name}.json", agentic(turn(130), turn(200)))
    first, _, second, _ = read(tmp_path)
    assert first.session != second.session
    assert not set(first.hash_ids or ()) & set(second.hash_ids or ())
    for name in ("one", "two"):
        write(f"{name}.json", agentic(turn(130), hash_id_scope="global"))
    first, second = read(tmp_path)
    assert first.hash_ids == second.hash_ids


def test_kvsim_rows_are_the_fields_of_a_request_under_long_or_short_names(write: Write) -> None:
    path = write("t.jsonl", jsonl(
        {"arrival": 1.5, "prompt_tokens": 20, "output_tokens": 3, "hash_ids": [9, 8], "hash_block": 16,
         "session": "s", "id": 4},
        {"prompt": 50, "output": 3, "blocks": [9, 8, 7, 6], "block_tokens": 16, "session": "s",
         "think_time": 0.25, "arrival": None},
        {"arrival": 2, "prompt": 700, "output": 3, "blocks": [1, 2], "salt": 1},
    ))  # fmt: skip
    trace = opened(path)
    assert listed(trace) == [
        Request(0, 1.5, 20, 3, [9, 8], 16, "s", None, "4"),
        Request(1, None, 50, 3, [9, 8, 7, 6], 16, "s", 0.25),
        Request(2, 2.0, 700, 3, [1, 2], 512),
    ]
    assert trace.quirks == ["field 'salt' is not known and ignored (1×)"]


def test_a_format_can_be_forced_and_each_says_what_it_is() -> None:
    for name, reader in READERS.items():
        assert TraceOptions(format=name).format == name
        assert len(reader.summary) < 100


# Time and order


@pytest.mark.parametrize(
    ("format_name", "row", "unit"),
    [("mooncake", {"input_length": 5, "output_length": 5}, 1e-3),
     ("kvsim", {"prompt_tokens": 5, "output_tokens": 5}, 1.0),
     ("timed-trace", {"input_length": 5, "output_length": 5}, 1.0)],
)  # fmt: skip
def test_unix_times_count_from_the_first_row(
    write: Write, format_name: str, row: dict[str, object], unit: float
) -> None:
    field = "arrival" if format_name == "kvsim" else "timestamp"
    start = 1_700_000_000 if unit == 1 else 1_700_000_000_000
    rows = [{field: start + offset, **row} for offset in (0, -250, 4000)]
    trace = opened(write("t.jsonl", jsonl(*rows)), format=format_name)
    assert [r.arrival for r in trace] == pytest.approx([0, 250 * unit, 4250 * unit])
    assert "count from the first row" in trace.quirks[0]


timed = st.tuples(st.floats(0, 1e6), st.sampled_from([None, "a", "b"]), st.booleans())


@given(st.lists(timed, max_size=60))
def test_small_disorder_is_sorted_and_turns_stay_in_their_order(
    rows: list[tuple[float, str | None, bool]],
) -> None:
    begun: set[str] = set()
    requests = []
    for row, (time, session, waits) in enumerate(rows):
        arrival: float | None = None if waits and session in begun else time
        if session is not None:
            begun.add(session)
        requests.append(Request(row, arrival, 1, 1, session=session, think_time=0.0))
    ordered = list(in_time_order(iter(requests), Ledger("error"), "t"))

    assert sorted(r.row for r in ordered) == list(range(len(rows)))
    arrivals = [r.arrival for r in ordered if r.arrival is not None]
    assert arrivals == sorted(arrivals)
    begun.clear()
    for request in ordered:
        assert request.arrival is not None or request.session in begun
        begun.add(request.session or "")


def test_rows_are_numbered_after_they_are_sorted(write: Write) -> None:
    rows = [{"arrival": t, "prompt": 5, "output": t + 1} for t in (3, 1, 2)]
    trace = opened(write("t.jsonl", jsonl(*rows)))
    assert [(r.row, r.arrival) for r in trace] == [(0, 1.0), (1, 2.0), (2, 3.0)]
    assert "slightly out of time order" in trace.quirks[0]


def every_second(write: Write, count: int, **more: object) -> Path:
    rows = ({"arrival": float(t), "prompt": 5, "output": 5, **more} for t in range(count))
    return write("t.jsonl", jsonl(*rows))


def arrivals(requests: Iterable[Request]) -> list[float]:
    return [r.arrival for r in requests if r.arrival is not None]


def test_a_part_of_a_trace_starts_at_0(write: Write) -> None:
    path = every_second(write, 20)
    assert arrivals(read(path, start=5.0, duration=3.0)) == [0, 1, 2]
    assert arrivals(read(path, start=18.0)) == [0, 1]
    assert arrivals(read(path, limit=2)) == [0, 1]
    assert arrivals(read(path, start=5.5, duration=10.0, limit=2, speedup=2.0)) == [0.25, 0.75]


def test_a_session_is_in_a_part_as_its_first_turn_is(write: Write) -> None:
    rows: list[dict[str, object]] = []
    for number in range(6):
        rows.append({"arrival": number, "prompt": 5, "output": 5, "session": f"s{number}"})
        rows.append({"prompt": 9, "output": 5, "session": f"s{number}", "think_time": 4.0})
    path = write("t.jsonl", jsonl(*rows))
    part = read(path, start=2.0, duration=2.0, speedup=4.0)
    assert [(r.session, r.arrival, r.think_time) for r in part] == [
        ("s2", 0.0, None), ("s2", None, 1.0), ("s3", 0.25, None), ("s3", None, 1.0)]  # fmt: skip


def test_a_rate_stretches_the_timeline_or_draws_it_anew(write: Write) -> None:
    path = every_second(write, 4001)
    assert arrivals(read(path, request_rate=4.0))[-1] == pytest.approx(1000)
    poisson = arrivals(read(path, request_rate=4.0, arrival="poisson"))
    assert poisson[-1] == pytest.approx(1000, rel=0.05)
    assert arrivals(read(path, arrival="poisson", speedup=4.0)) == pytest.approx(poisson)
    assert arrivals(read(path, request_rate=4.0, arrival="poisson", seed=1)) != poisson
    assert set(arrivals(read(path, request_rate=float("inf")))) == {0.0}


def test_gamma_arrivals_have_the_variation_of_their_burstiness(write: Write) -> None:
    path = every_second(write, 20_000)
    for burstiness in (0.25, 1.0, 4.0):
        trace = opened(path, request_rate=2.0, arrival="gamma", burstiness=burstiness)
        measured = summarise(trace).arrivals
        assert measured.cv == pytest.approx(burstiness**-0.5, rel=0.05)
        assert measured.rate == pytest.approx(2.0, rel=0.05)


def test_a_rate_is_of_sessions_where_turns_wait(tmp_path: Path, write: Write) -> None:
    for number in range(40):
        write(f"{number:02}.json", agentic(turn(130), turn(200), name=str(number)))
    requests = read(tmp_path, request_rate=2.0, arrival="poisson")
    assert arrivals(requests)[-1] == pytest.approx(20, rel=0.5)
    assert sum(r.think_time == 2.0 for r in requests) == 40


# Files and pipes


def test_a_trace_can_be_read_again_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    data = gzip.compress(jsonl({"timestamp": 0, "input_length": 5, "output_length": 5}).encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    trace = open_trace("-")
    assert list(trace) == list(trace) == [Request(0, 0.0, 5, 5)]
    assert trace.name == "stdin"
    assert len(trace.sha256()) == 64


def test_a_long_trace_is_never_in_memory(write: Write) -> None:
    path = every_second(write, 30_000, blocks=list(range(50)), block_tokens=1, prompt=50)
    trace = opened(path)
    tracemalloc.start()
    for _ in trace:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3000 * (WINDOW + 100)


ids = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5)
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5)
seconds = st.floats(0, 86_000)


@st.composite
def traces(draw: st.DrawFn) -> list[Request]:
    """Valid requests in time order, some of them turns that wait."""
    requests: list[Request] = []
    sessions: list[str] = []
    for row, arrival in enumerate(sorted(draw(st.lists(seconds, min_size=1, max_size=8)))):
        blocks = draw(st.none() | ids)
        size = draw(st.integers(1, 600)) if blocks else 0
        prompt = max(1, len(blocks or ()) * size - draw(st.integers(0, max(0, size - 1))))
        waits = bool(sessions) and draw(st.booleans())
        session = draw(st.sampled_from(sessions)) if waits else draw(st.none() | names)
        if session is not None:
            sessions.append(session)
        think = draw(seconds) if waits else None
        requests.append(Request(row, None if waits else arrival, prompt, draw(st.integers(1, 10**9)),
                                blocks, size, session, think, draw(st.none() | st.just(f"r{row}"))))  # fmt: skip
    return requests


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.parquet"])
@given(traces())
@settings(max_examples=60, deadline=None)
def test_conversion_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory, name: str, requests: list[Request]
) -> None:
    path = tmp_path_factory.mktemp("trace") / name
    assert write_trace(requests, str(path)) == len(requests)
    trace = open_trace(path)
    assert trace.format == ("parquet" if name.endswith("parquet") else "kvsim")
    assert listed(trace) == requests
    assert trace.quirks == []


# The real traces


def test_mooncake_conversation_reuses_what_its_paper_says(shared: Path) -> None:
    summary = summarise(open_trace(shared / "traces/mooncake/conversation_trace.jsonl.gz"))
    assert summary.requests == 12_031
    assert round(summary.prompt_tokens.mean) == 12_035
    assert round(summary.output_tokens.mean) == 343
    assert (summary.prefix.block_hits, summary.prefix.blocks) == (105_710, 288_500)
    assert summary.prefix.token_hits == 54_063_104
    assert summary.arrivals.distinct_stamps == 1_180
    assert summary.quirks == summary.suspicions == []


def test_azure_code_is_as_bursty_as_measured(shared: Path) -> None:
    summary = summarise(open_trace(shared / "traces/azure2023/AzureLLMInferenceTrace_code.csv"))
    assert (summary.requests, summary.prompt_tokens.p50, summary.output_tokens.p50) == (
        8_819,
        1469,
        13,
    )
    assert summary.arrivals.cv == pytest.approx(13.2, abs=0.1)


def test_all_agentic_sessions_are_read(shared: Path) -> None:
    one = open_trace(shared / "traces/agentic_coding/trace_0019.json.gz")
    summary = summarise(one)
    assert (summary.requests, summary.sessions, summary.closed_loop_turns) == (24, 1, 23)
    with (shared / "traces/agentic_coding/MANIFEST.csv").open() as file:
        listed = list(csv.DictReader(file))
    every = read(shared / "traces/agentic_coding")
    assert len({r.session for r in every}) == len(arrivals(every)) == len(listed) == 110
    assert len(every) == 6_801 + 136
    assert max(r.think_time or 0.0 for r in every) == 60.0


def test_burstgpt_and_length_tables_are_read(shared: Path) -> None:
    assert len(read(shared / "traces/burstgpt/burstgpt_1_head54.csv")) == 51
    folder = shared / "traces/lengths"
    assert len(read(folder / "sharegpt_8k_filtered_stats_llama2_tokenizer.csv")) == 30_731


def test_the_workloads_of_the_reference_runs_are_read(shared: Path) -> None:
    files = sorted((shared / "reference").glob("*/workloads/*"))
    assert len(files) >= 7
    for file in files:
        opener = gzip.open if file.suffix == ".gz" else open
        with opener(file, "rb") as lines:
            rows = [json.loads(line) for line in lines]
        requests = read(file)
        assert [(r.arrival, r.prompt_tokens, r.output_tokens) for r in requests] == [
            (row["arrival"], row["prompt"], row["output"]) for row in rows]  # fmt: skip
        assert [r.hash_ids for r in requests] == [row.get("blocks") for row in rows]


def test_disorder_in_a_real_trace_is_mended(shared: Path, write: Write) -> None:
    source = shared / "traces/mooncake/mooncake_arxiv_first16_dynamo_fixture.jsonl"
    lines = source.read_text().splitlines(keepends=True)
    random.Random(0).shuffle(lines)
    shuffled = write("t.jsonl", "".join(lines))
    assert sorted(map(str, arrivals(read(shuffled)))) == sorted(map(str, arrivals(read(source))))


def test_a_recorded_workload_may_name_more_blocks_than_its_cut_prompt_has(write: Write) -> None:
    rows = jsonl({"arrival": 0.0, "prompt": 700, "output": 3, "blocks": [1, 2, 3, 4]})
    trace = opened(write("t.jsonl", rows))
    assert listed(trace) == [Request(0, 0.0, 700, 3, [1, 2], 512)]
    assert trace.quirks == ["ids in 'blocks' past the end of the prompt are ignored (1×)"]
