"""Advice: situations cut out of a trace, techniques put to the test, and why some do nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kvsim.advice import Advice, recommend
from kvsim.advice.answer import Finding, Row
from kvsim.advice.document import document
from kvsim.advice.situation import FEWEST, Situation, cut, situations
from kvsim.advice.techniques import TECHNIQUES
from kvsim.cli.app import run
from kvsim.core import Request
from kvsim.errors import ConfigError
from kvsim.scenario import Scenario

Write = Callable[[str, str], Path]
MODEL = Scenario(model="llama-3.1-8b")


def trace(write: Write, *rows: dict[str, object], times: int = 1) -> str:
    """A trace of rows, repeated."""
    lines = [
        json.dumps({"arrival": round(0.05 * number, 3), **row})
        for number, row in enumerate(row for _ in range(times) for row in rows)
    ]
    return str(write("trace.jsonl", "\n".join(lines) + "\n"))


def row_of(advice: Advice, name: str) -> Row:
    return next(row for row in advice.rows if row.situation.name.startswith(name))


def found(row: Row, key: str) -> Finding:
    return next(one for one in row.findings if one.technique is TECHNIQUES[key])


@pytest.fixture(scope="module")
def chat(root: Path) -> Advice:
    """Conversations with shared prefixes."""
    return recommend(MODEL, root / "traces" / "chat.jsonl.gz", most=200, clients=16)


# Situations.


def talk(row: int, *, session: str | None = None, tokens: int = 100) -> Request:
    return Request(row, float(row), tokens, 10, session=session)


def test_one_at_a_time_is_one_client_who_asks_again_when_answered() -> None:
    chosen = cut((talk(n) for n in range(FEWEST)), Situation("one", clients=1), 100)
    first, *later = chosen.requests
    assert (first.arrival, first.session) == (0.0, "client 0")
    assert {(r.arrival, r.session, r.think_time) for r in later} == {(None, "client 0", 0.0)}
    assert [r.row for r in chosen.requests] == list(range(FEWEST))


def test_many_at_once_keep_the_turns_of_a_conversation_with_one_client() -> None:
    requests = [talk(n, session=f"talk {n // 2}") for n in range(80)]
    chosen = cut(requests, Situation("many", clients=8), 100)
    assert chosen.lack is None
    assert sum(r.arrival == 0.0 for r in chosen.requests) == 8
    assert len({r.session for r in chosen.requests}) == 8
    assert len(chosen.requests) == 80


def test_each_length_has_its_row_and_none_has_two() -> None:
    asked = [s for s in situations(8, "l4") if s.clients == 1 and s.gpu is None]
    for tokens in (1, 4096, 4097, 131_072, 131_073, 10**6):
        request = Request(0, 0.0, tokens - 1, 1)
        lengths = [s for s in asked if cut([request] * FEWEST, s, 99).lack is None]
        assert len(lengths) == 1, tokens


def test_too_few_requests_are_not_enough_evidence(chat: Advice) -> None:
    beyond = row_of(chat, "beyond")
    assert beyond.base is None
    assert beyond.lack == "not enough evidence: 0 requests of the trace are so, 30 are needed"


# What helps, and why the rest does not.


def test_prefix_caching_helps_conversations_by_what_it_finds(chat: Advice) -> None:
    one = found(row_of(chat, "short texts, many"), "prefix-caching")
    assert (one.verdict, one.in_use) == ("helps", True)
    assert "of prompt tokens were found of" in one.reason
    assert one.decisive is not None
    assert one.decisive.after > one.decisive.before


def test_a_working_set_that_fits_makes_offload_and_eviction_inert(chat: Advice) -> None:
    row = row_of(chat, "short texts, many")
    for key in ("offload", "eviction"):
        one = found(row, key)
        assert one.verdict == "inert"
        assert one.reason.startswith("working set fits")


def test_nobody_is_disturbed_by_the_prompts_of_a_single_user(chat: Advice) -> None:
    row = row_of(chat, "short texts, one")
    assert found(row, "chunked-prefill").verdict == "inert"
    assert "one request at a time" in found(row, "chunked-prefill").reason
    assert "never need more" in found(row, "seats").reason


def test_whole_prompts_need_memory_for_the_longest_prompt(chat: Advice) -> None:
    one = found(row_of(chat, "long texts, one"), "chunked-prefill")
    assert one.comparison is not None
    whole, cut_up = one.comparison.without, one.comparison.with_it
    assert whole.scenario.max_num_batched_tokens == 131_072
    assert one.comparison.before("kv_blocks_total") < one.comparison.after("kv_blocks_total")
    assert cut_up.scenario.max_num_batched_tokens == 8192


def test_a_change_is_recommended_at_no_price_only_if_it_costs_nothing(chat: Advice) -> None:
    for row in chat.rows:
        prices = {one.technique.name: one.technique.price for one in row.findings}
        for name in row.together.names if row.together else ():
            assert prices[name.removeprefix("no ")] is None
    edge = row_of(chat, "edge")
    assert edge.at_a_price is not None
    assert "4-bit weights" in edge.at_a_price.names
    assert edge.at_a_price.changes[0].gain == 1


def test_advice_says_which_times_no_kernel_stands_behind(chat: Advice) -> None:
    row = row_of(chat, "your traffic, as recorded")
    assert "int4 weights extrapolated" in found(row, "weights-4bit").reason
    assert "extrapolated" not in found(row, "weights-8bit").reason
    edge = row_of(chat, "edge")
    assert edge.at_a_price is not None
    assert "4-bit weights" in edge.at_a_price.names
    assert edge.at_a_price.times.endswith("int4 weights extrapolated")


def test_a_prefix_shorter_than_a_block_is_why_caching_is_inert(write: Write) -> None:
    rows = [
        {"prompt_tokens": 400, "output_tokens": 5, "hash_ids": [1, 100 + n], "hash_block": 64}
        for n in range(40)
    ]
    path = trace(write, *rows)
    coarse = recommend(MODEL.changed(block_size=128), path)
    one = found(row_of(coarse, "your traffic"), "prefix-caching")
    assert one.verdict == "inert"
    assert (
        "prefix shorter than a block: 64 tokens are shared at most, a block has 128" in one.reason
    )
    fine = found(row_of(recommend(MODEL, path), "short texts, one"), "prefix-caching")
    assert "were found" in fine.reason


def test_a_trace_without_ids_cannot_tell_what_is_shared(write: Write) -> None:
    path = trace(write, {"prompt_tokens": 400, "output_tokens": 5}, times=40)
    row = row_of(recommend(MODEL, path), "short texts, one")
    for key in ("prefix-caching", "radix", "offload"):
        assert found(row, key).verdict == "not enough evidence"
        assert "does not say" in found(row, key).reason


def test_a_working_set_that_does_not_fit_is_brought_back_from_the_host(write: Write) -> None:
    rows = [
        {"prompt_tokens": 640, "output_tokens": 4, "hash_ids": list(range(10 * n, 10 * n + 10))}
        | {"hash_block": 64}
        for n in range(20)
    ]
    small = MODEL.changed(num_gpu_blocks_override=200)
    row = row_of(recommend(small, trace(write, *rows, times=3)), "short texts, one")
    one = found(row, "offload")
    assert one.verdict == "helps"
    assert "256 GiB of the host bring back" in one.reason
    assert not found(row, "eviction").reason.startswith("working set fits")


def test_narrower_weights_are_what_a_small_gpu_needs(write: Write) -> None:
    path = trace(write, {"prompt_tokens": 300, "output_tokens": 5}, times=40)
    edge = row_of(recommend(Scenario(model="qwen3-14b"), path), "edge")
    assert edge.needed == "fp8 weights, without which it does not fit"
    assert edge.base is not None
    assert edge.base.summary is not None
    huge = row_of(recommend(Scenario(model="llama-3-70b", tensor_parallel_size=4), path), "edge")
    assert huge.lack is not None
    assert "does not fit on L4" in huge.lack


def test_a_narrower_cache_makes_room_for_requests_that_were_refused(write: Write) -> None:
    path = trace(write, {"prompt_tokens": 30_000, "output_tokens": 5}, times=40)
    row = row_of(recommend(MODEL.changed(gpu="l4"), path), "long texts, one")
    assert row.base is not None
    assert row.base.failure == "40 of 40 requests are too long for it and are refused"
    one = found(row, "kv-8bit")
    assert one.verdict == "makes it fit"
    assert "too long" in one.reason


# The reader.


def test_every_technique_is_judged_and_explained_everywhere(chat: Advice) -> None:
    for row in chat.rows:
        if row.base is not None:
            assert [one.technique for one in row.findings] == list(TECHNIQUES.values())
            assert all(one.reason for one in row.findings)


def test_advice_does_not_depend_on_the_number_of_processes(write: Write) -> None:
    path = trace(write, {"prompt_tokens": 400, "output_tokens": 5}, times=40)
    one, two = (recommend(MODEL, path, jobs=jobs) for jobs in (1, 2))
    assert document(one) == document(two)


def test_the_command_prints_advice_as_json_and_as_a_table(
    capsys: pytest.CaptureFixture[str], write: Write
) -> None:
    path = trace(write, {"prompt_tokens": 400, "output_tokens": 5}, times=40)
    command = ["recommend", path, "--model", "llama-3.1-8b", "--jobs", "1", "--no-cache"]
    assert run([*command, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["situation"] for row in shown["situations"]] == [
        row.name for row in situations(64, "L4-24GB")
    ]
    paid = shown["situations"][1]["at_a_price"]
    assert paid["vllm"].startswith("vllm serve")
    assert run(command) == 0
    table = capsys.readouterr().out
    assert "short texts, one at a time" in table
    assert "not enough evidence" in table


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (["--edge-gpu", "l5"], 2, "did you mean"),
        (["--clients", "1"], 2, "--clients 1"),
        (["--requests", "0"], 2, "--requests 0"),
        (["--clint", "8"], 2, "did you mean --clients"),
        (["--format", "csv"], 2, "table or json"),
        (["--model", "llama-4-800b"], 2, "unknown model"),
    ],
)
def test_a_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str], write: Write, flags: list[str], code: int, said: str
) -> None:
    path = trace(write, {"prompt_tokens": 40, "output_tokens": 5}, times=2)
    assert run(["recommend", path, "--no-cache", "--jobs", "1", *flags]) == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error


def test_standard_input_cannot_be_read_several_times() -> None:
    with pytest.raises(ConfigError, match="standard input"):
        recommend(MODEL, "-")
