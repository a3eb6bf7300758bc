"""kvsim decides as real engines do: recorded decisions of vLLM and SGLang, request by request."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kvsim.errors import TraceError
from kvsim.validation import validate
from kvsim.validation.reference import beside, load_reference
from kvsim.validation.scheduler import (
    decide,
    engine_of,
    recorded_iterations,
    recorded_requests,
)

GOLDEN = Path(__file__).parent / "golden" / "vllm_scheduler"
EXTRACTS = sorted(path.name for path in GOLDEN.glob("*.json.gz"))
RECORDINGS = [
    "blocks12000__agent1",
    "blocks2048__azcode",
    "blocks57500__moonconv",
    "blocks6000__moonconv",
]
RADIX = ["cap1000000_page64__conversation3000", "cap3000000_page1__conversation3000"]


@pytest.mark.parametrize("leaps", [True, False])
@pytest.mark.parametrize("name", EXTRACTS)
def test_every_request_of_an_extract_is_decided_as_vllm_decided(name: str, leaps: bool) -> None:
    verdict = validate(GOLDEN / name, leaps=leaps)
    assert verdict.first_mismatch is None
    assert verdict.exact == verdict.requests > 10


@pytest.mark.parametrize("leaps", [True, False])
@pytest.mark.parametrize("name", RECORDINGS)
def test_every_recorded_request_is_decided_as_vllm_decided(
    shared: Path, name: str, leaps: bool
) -> None:
    verdict = validate(shared / "reference/vllm_scheduler" / f"{name}.json.gz", leaps=leaps)
    assert verdict.first_mismatch is None
    assert verdict.exact == verdict.requests > 100


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_recorded_iteration_leaves_the_engine_as_it_left_vllm(
    shared: Path, name: str
) -> None:
    path = shared / "reference/vllm_scheduler" / f"{name}.json.gz"
    recording = load_reference(path)
    requests = list(recorded_requests(path, recording["requests"], beside(path, None)))
    found = decide(requests, engine_of(recording, path), leaps=False).iterations
    # The recordings round the KV usage to six digits.
    assert [state._replace(kv_usage=round(state.kv_usage, 6)) for state in found] == [
        *recorded_iterations(recording)
    ]


@pytest.mark.parametrize("name", RADIX)
def test_every_recorded_request_hits_the_radix_tree_as_in_sglang(shared: Path, name: str) -> None:
    trace = shared / "traces/mooncake/conversation_trace.jsonl.gz"
    verdict = validate(shared / "reference/sglang_radix" / f"{name}.json.gz", trace)
    assert (verdict.first_mismatch, verdict.exact) == (None, 3000)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A copy of an extract, with its workload, that a test may spoil."""
    name = EXTRACTS[0]
    workload = name.split(".json")[0].split("__")[1] + ".jsonl.gz"
    (tmp_path / "workloads").mkdir()
    (tmp_path / name).write_bytes((GOLDEN / name).read_bytes())
    (tmp_path / "workloads" / workload).write_bytes((GOLDEN / "workloads" / workload).read_bytes())
    return tmp_path / name


def spoil(path: Path, change: dict[str, object], *, row: int = 3) -> None:
    content = json.loads(gzip.decompress(path.read_bytes()))
    content["requests"][row].update(change)
    path.write_text(json.dumps(content))


def test_the_first_difference_is_named_and_explained(recording: Path) -> None:
    spoil(recording, {"cached": 12_345})
    verdict = validate(recording)
    assert verdict.exact == verdict.requests - 1
    mismatch = verdict.first_mismatch
    assert mismatch is not None
    assert (mismatch.row, mismatch.field, mismatch.engine) == (3, "cached", 12_345)
    assert f"cached is 12345 in the engine and {mismatch.kvsim} here" in mismatch.explanation


def test_a_recording_without_prefix_caching_is_replayed_without(recording: Path) -> None:
    content = json.loads(gzip.decompress(recording.read_bytes()))
    content["meta"]["prefix_caching"] = False
    recording.write_text(json.dumps(content))
    engine = engine_of(content, recording)
    requests = list(recorded_requests(recording, content["requests"], beside(recording, None)))
    found = decide(requests, engine, leaps=True).requests
    assert {decisions[3] for decisions in found.values()} == {0}
    content["meta"]["prefix_caching"] = "no"
    with pytest.raises(TraceError, match="prefix_caching is 'no'; accepted: true, false"):
        engine_of(content, recording)


def test_a_recording_with_a_field_that_is_no_number_is_refused_by_name(recording: Path) -> None:
    spoil(recording, {"finish_us": "soon"})
    with pytest.raises(TraceError, match=r"requests\[3\]\.finish_us is 'soon'; accepted"):
        validate(recording)


def test_a_row_that_the_workload_lacks_is_named(recording: Path) -> None:
    spoil(recording, {"row": 999})
    with pytest.raises(TraceError, match="has no row 999"):
        validate(recording)


def test_a_missing_workload_is_asked_for(recording: Path) -> None:
    for file in (recording.parent / "workloads").iterdir():
        file.unlink()
    with pytest.raises(TraceError, match="give --workload"):
        validate(recording)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a recording"),
        (b"[]", "holds a list"),
        (b"{}", "meta.num_blocks is None"),
        (b"\x1f\x8b\x08\x00", "gzip|recording"),
        (b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 9, "not a recording: .* invalid block type"),
        (b"[" * 100_000, "not a recording: maximum recursion depth"),
        (
            b'{"meta": {"capacity_tokens": 5, "page_size": 0}, "rows": [[0, 1, 1, 0, 1, 2]]}',
            "meta.page_size is 0; accepted: a whole number from 1",
        ),
        (
            b'{"meta": {"num_blocks": 9, "block_size": 0}, "requests": []}',
            "meta.block_size is 0; accepted: a whole number from 1",
        ),
        (
            b'{"meta": {"capacity_tokens": 5, "page_size": 1}, "rows": []}',
            "rows is missing or empty",
        ),
    ],
)
def test_what_is_no_recording_is_refused_in_one_line(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    path = tmp_path / "x__y.json.gz"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=complaint) as refusal:
        validate(path)
    assert "\n" not in str(refusal.value)


def test_a_directory_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json.gz"):
        with pytest.raises(TraceError, match=str(path)):
            validate(path)
