"""Measured runs of vLLM on a GPU: the rules iteration by iteration, the predictions metric by metric."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvsim.cli.app import run as run_kvsim
from kvsim.cli.validate import error_of, percent
from kvsim.errors import KvsimError, TraceError
from kvsim.validation import Comparison, RunReport, sensitivity, validate, worst
from kvsim.validation.measured import compare
from kvsim.validation.metrics import gaps_of, latencies, predicted, values
from kvsim.validation.observed import Outcome
from kvsim.validation.report import check_report

GOLDEN = Path(__file__).parent / "golden" / "vllm_h200"
ROWS = {"l8b_default__micro": 0, "q32b_default__q_micro": 0, "l8b_kv12000__agent1": 0,
        "l8b_default__code8": 1, "l8b_default__moonconv2": 0}  # fmt: skip
"""Iterations that may differ: an arrival within a millisecond of an iteration falls either way."""


def report(path: Path) -> RunReport:
    found = validate(path)
    assert isinstance(found, RunReport)
    return found


@pytest.mark.parametrize("name", sorted(ROWS))
def test_with_the_recorded_times_every_iteration_is_scheduled_as_vllm_did(name: str) -> None:
    found = report(GOLDEN / f"{name}.json.gz")
    assert found.rows >= 290
    assert found.rows - found.equal_rows <= ROWS[name]


@pytest.mark.parametrize("name", sorted(ROWS))
def test_an_extract_is_predicted_up_to_its_end(name: str) -> None:
    errors = [
        abs(one.rel_error or 0) for one in report(GOLDEN / f"{name}.json.gz").metrics.values()
    ]
    assert np.median(errors) < 0.015
    assert np.quantile(errors, 0.9) < 0.035


DIFFER = {"l8b_default__micro": 0, "q32b_default__micro": 1, "l8b_kv12000__agent1": 1,
          "l8b_default__code8": 16, "l8b_default__moonconv2": 33}  # fmt: skip
"""Iterations of whole runs that may, as few as the rules alone were found to leave."""
RUNS = ["l8b_default__code8", "l8b_default__moonconv2", "l8b_kv12000__agent1", "l8b_default__micro",
        "l8b_mbt8192_fp8kv__code8", "l8b_mbt8192_fp8kv__moonconv2", "q32b_default__micro"]  # fmt: skip


def test_latencies_and_throughput_of_dense_models_are_predicted_within_their_band(
    shared: Path,
) -> None:
    runs = [report(shared / "reference/vllm_h200" / f"{name}.json.gz") for name in RUNS]
    median, largest = worst(runs)
    assert median < 0.015
    assert largest < 0.1
    for run in runs:
        metrics = run.metrics
        assert run.rows - run.equal_rows <= DIFFER.get(run.name, 60)
        assert metrics["iterations"].rel_error == pytest.approx(0, abs=0.03)
        assert abs(metrics["output_throughput"].rel_error or 0) < 0.03
        assert metrics["cached_tokens"].measured == metrics["cached_tokens"].predicted
        assert metrics["peak_kv_usage"].measured == pytest.approx(
            metrics["peak_kv_usage"].predicted, abs=0.02
        )
        for kind in ("decode", "mixed"):
            assert abs(run.step_time[kind].rel_error) < 0.03


Recording = dict[str, Any]


@pytest.fixture
def code8() -> Recording:
    """A recording to be changed."""
    path = GOLDEN / "l8b_default__code8.json.gz"
    found: Recording = json.loads(gzip.decompress(path.read_bytes()))
    return found


def validated(recording: Recording, folder: Path) -> RunReport:
    path = folder / "x.json"
    path.write_text(json.dumps(recording))
    found = validate(path, GOLDEN / "workloads" / "code8.jsonl.gz")
    assert isinstance(found, RunReport)
    return found


BAD_REQUESTS: list[tuple[Recording, str]] = [
    ({"i": 100_000}, r"requests\[3\]\.i is 100000, but .* has \d+ requests"),
    ({"prompt": 5}, r"requests\[3\]\.prompt is 5, but \d+ in row 3 of .*; accepted"),
    ({"submit": "now"}, r"requests\[3\]\.submit is 'now'; accepted: seconds"),
    ({"ttft": float("nan")}, r"requests\[3\]\.ttft is nan; accepted: seconds"),
    ({"output": 0}, r"requests\[3\]\.output is 0; accepted: a whole number from 1"),
    ({"cached": 0.5}, r"requests\[3\]\.cached is 0.5; accepted: a whole number"),
    ({"token_times": ["soon"]}, r"requests\[3\]\.token_times"),
]
BAD_ENGINES: list[tuple[Recording, str]] = [
    ({"num_gpu_blocks": None}, "info.num_gpu_blocks is None"),
    ({"engine_args": None}, "info.engine_args is None"),
    ({"engine_args": {"model": "gpt-9"}}, "unknown model 'gpt-9'"),
    ({"engine_args": {"async_scheduling": False}}, "async_scheduling is False; accepted: True"),
    ({"engine_args": {"pipeline_parallel_size": 2}}, "pipeline_parallel_size is 2; accepted: 1"),
    ({"engine_args": {"speculative_config": {"method": "ngram"}}}, "is {.*}; accepted: none"),
    ({"engine_args": {"enable_prefix_caching": "no"}}, "is 'no'; accepted: true, false"),
    ({"engine_args": {"tensor_parallel_size": 0}}, "is 0; accepted: a whole number from 1"),
    ({"engine_args": {"kv_offloading_size": "48"}}, "is '48'; accepted: a number from 0"),
    (
        {"engine_args": {"kv_offloading_size": 48, "enable_prefix_caching": False}},
        "enable_prefix_caching is False with a kv_offloading_size; accepted: True, or no",
    ),
    ({"engine_args": {"kv_cache_dtype": 8}}, "is 8; accepted: a text"),
    ({"engine_args": {"kv_cache_dtype": "half"}}, "unknown kv cache dtype 'half'"),
    ({"cudagraph_capture_sizes": ["8"]}, "accepted: a list of whole numbers from 1"),
    ({"block_size": 0}, "info.block_size is 0; accepted: a whole number from 1"),
    ({"max_num_batched_tokens": 8}, "max_num_batched_tokens is 8, less than max_num_seqs"),
    ({"num_gpu_blocks": 20}, r"request \d+: .* exceed the KV pool .*, yet the engine has served"),
]
BAD_TABLES: list[tuple[Recording, str]] = [
    ({"iterations": [None]}, r"iterations\[0\] is None; accepted: numbers"),
    ({"iterations": [[0.1, 1, 0, None]]}, r"iterations\[0\] is .*; accepted: numbers"),
    ({"iteration_fields": ["t", "waiting"]}, "iteration_fields are others; accepted: t, running"),
    ({"iteration_fields": None}, "iteration_fields are others; accepted: t, running"),
    ({"requests": [{"i": 0, "submit": 0.0}]}, "no request has a ttft and an e2e"),
]


@pytest.mark.parametrize(
    ("table", "spoiled", "complaint"),
    [
        *(("requests", *bad) for bad in BAD_REQUESTS),
        *(("info", *bad) for bad in BAD_ENGINES),
        *(("", *bad) for bad in BAD_TABLES),
    ],
)
def test_a_recording_that_cannot_be_compared_is_refused_in_one_line(
    code8: Recording, tmp_path: Path, table: str, spoiled: Recording, complaint: str
) -> None:
    where = {"requests": code8["requests"][3], "info": code8["info"], "": code8}[table]
    engine = {**code8["info"]["engine_args"], **(spoiled.get("engine_args") or {})}
    where.update({**spoiled, "engine_args": engine} if spoiled.get("engine_args") else spoiled)
    with pytest.raises(TraceError, match=complaint) as refusal:
        validated(code8, tmp_path)
    assert str(tmp_path / "x.json") in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_what_was_not_recorded_is_not_compared(code8: Recording, tmp_path: Path) -> None:
    everything = validated(code8, tmp_path).metrics
    for request in code8["requests"]:
        request.update(cached=None, token_times=None)
    code8["info"]["engine_args"].update(kv_cache_dtype=None, kv_offloading_size=None)
    found = validated(code8, tmp_path).metrics
    assert everything.keys() - found.keys() == {"cached_tokens", "itl_p50", "itl_p99"}
    assert found["ttft_mean"] == everything["ttft_mean"]


OF_A_LOG = {"iterations", "preemptions", "peak_kv_usage", "mean_kv_usage"}


@pytest.mark.parametrize("iterations", [None, []])
def test_a_run_whose_iterations_were_not_logged_is_compared_by_its_requests(
    code8: Recording, tmp_path: Path, iterations: object
) -> None:
    everything = validated(code8, tmp_path).metrics
    code8["iterations"] = iterations
    found = validated(code8, tmp_path).metrics
    assert everything.keys() - found.keys() == OF_A_LOG
    assert found["ttft_mean"] == everything["ttft_mean"]
    served, page = str(GOLDEN / "workloads" / "code8.jsonl.gz"), tmp_path / "page.html"
    arguments = ["validate", str(tmp_path / "x.json"), "--workload", served]
    assert run_kvsim([*arguments, "--report", str(page)]) == 0
    assert page.is_file()


def test_a_log_that_ends_before_its_run_says_nothing_of_the_whole(
    code8: Recording, tmp_path: Path
) -> None:
    everything = validated(code8, tmp_path)
    code8["iterations"] = code8["iterations"][:200]
    found = validated(code8, tmp_path)
    assert everything.metrics.keys() - found.metrics.keys() == OF_A_LOG
    assert found.rows == 200  # what is there can still be held against the rules
    assert 0 < len(found.steps) < len(everything.steps)


def test_requests_without_an_end_are_served_and_refused_ones_are_not(
    code8: Recording, tmp_path: Path
) -> None:
    before = validated(code8, tmp_path).run
    code8["requests"][3].update(ttft=None, e2e=None, output=0)
    code8["requests"][4].update(ttft=None, e2e=0.001, output=0)
    run = validated(code8, tmp_path).run
    assert len(run.requests) == len(before.requests) - 1
    assert len(run.outcomes) == len(before.outcomes) - 2


def test_requests_that_were_never_called_are_not_served(code8: Recording, tmp_path: Path) -> None:
    code8["requests"] = code8["requests"][:9]
    every = validated(code8, tmp_path).run.requests
    for called, served in ((20, 20), (4, 9), (None, len(every))):
        code8["n_requests"] = called
        assert len(validated(code8, tmp_path).run.requests) == served


def test_the_gaps_of_a_stopped_run_are_those_of_its_recorded_requests(
    code8: Recording, tmp_path: Path
) -> None:
    code8["requests"] = [max(code8["requests"], key=lambda request: int(request["output"]))]
    found = validated(code8, tmp_path)
    end, (kept,) = found.run.end, found.run.outcomes.values()
    assert gaps_of(found.run, found.seen, 2 * end)[1].sum() == kept.output - 1 > 100


def test_answers_of_one_token_have_a_ttft_and_no_tpot() -> None:
    found = latencies([Outcome(0.0, 1.0, 1.0, 1, 0), Outcome(0.0, 3.0, 5.0, 3, 0)])
    assert (found["ttft_mean"], found["e2e_mean"], found["tpot_mean"]) == (2.0, 3.0, 1.0)
    assert "tpot_mean" not in latencies([Outcome(0.0, 1.0, 1.0, 1, 0)])


def test_an_engine_is_built_with_the_arguments_of_the_recorded_one(
    code8: Recording, tmp_path: Path
) -> None:
    code8["info"]["engine_args"].update(
        model="runs/llama31-8b/", enable_prefix_caching=False, kv_cache_dtype="fp8",
        long_prefill_token_threshold=256, quantization="fp8",
    )  # fmt: skip
    code8["info"]["cudagraph_capture_sizes"] = [1, 2, 4, 8]
    setup = validated(code8, tmp_path).run.setup
    assert setup.layout.model.name == "meta-llama/Meta-Llama-3.1-8B"
    assert not setup.prefix_caching
    assert setup.layout.dtype == "fp8"
    assert setup.host.launches.largest == 8
    assert setup.longest_chunk == 256
    code8["info"]["engine_args"]["enforce_eager"] = True
    assert validated(code8, tmp_path).run.setup.host.launches.largest == 0


def test_the_slower_an_engine_is_taken_to_be_the_longer_its_answers_take() -> None:
    run = report(GOLDEN / "q32b_default__q_micro.json.gz").run
    as_it_is, slower = (values(predicted(run, run.setup.serve(run.requests, slowness=s)))
                        for s in (1.0, 1.1))  # fmt: skip
    assert slower["tpot_p50"] / as_it_is["tpot_p50"] == pytest.approx(1.1, abs=0.002)
    assert slower["iterations"] == as_it_is["iterations"]


def test_an_interval_is_as_wide_as_a_metric_is_sensitive() -> None:
    theirs = {"calm": 1.0, "touchy": 1.0, "gone": 0.0}
    ours = {"calm": 1.0, "touchy": 1.2, "gone": 0.0}
    slower = {"calm": 1.0, "touchy": 1.32, "gone": 0.0}
    found = compare(theirs, ours, slower, 0.03)
    assert found["calm"].low == pytest.approx(0.98)
    assert found["touchy"].sensitivity == pytest.approx(0.1)
    assert found["touchy"].sensitive
    assert found["touchy"].inside  # 10 % for 1 % of step time, which is known to 3 %
    assert found["gone"].rel_error is None
    assert found["gone"].inside


def test_a_report_is_one_page_with_the_numbers_beside_it(tmp_path: Path) -> None:
    runs = [GOLDEN / "l8b_default__micro.json.gz", GOLDEN / "l8b_kv12000__agent1.json.gz"]
    page = tmp_path / "out.html"
    assert run_kvsim(["validate", *map(str, runs), "--report", str(page)]) == 0
    text = page.read_text()
    assert text.count("data:image/png;base64,") == 2
    assert "http" not in text
    assert len(text) < 500_000
    found = json.loads(page.with_suffix(".json").read_text())
    assert [run["name"] for run in found["runs"]] == [run.name.split(".")[0] for run in runs]
    assert 0 < found["median_abs_rel_error"] < found["max_abs_rel_error"]


def test_a_report_with_another_ending_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(KvsimError, match=r"must end in \.html"):
        check_report(tmp_path / "out.pdf")


def test_one_factor_calibrates_a_projected_gpu_and_its_starved_queue(shared: Path) -> None:
    found = validate(shared / "traces/vllm_measured/RTX4090/Llama-3.1-8B/vllm", calibrate=True)
    assert isinstance(found, RunReport)
    assert found.metrics["max_waiting"].predicted == pytest.approx(234, abs=5)
    assert found.metrics["peak_kv_usage"].predicted > 0.999
    assert all(abs(metric.rel_error or 0) < 0.03 for metric in found.metrics.values())
    assert found.slowness != 1


def test_another_gpu_is_known_less_well(shared: Path) -> None:
    folder = shared / "traces/vllm_measured/RTXPRO6000/Llama-3.1-8B/vllm"
    found = validate(folder / "meta.json")
    assert isinstance(found, RunReport)
    tpot = found.metrics["tpot_p50"]
    assert (tpot.high - tpot.low) / tpot.predicted > 0.2
    assert tpot.inside


def test_mixtures_of_experts_are_known_less_well(code8: Recording, tmp_path: Path) -> None:
    dense = validated(code8, tmp_path).run.setup.step_doubt
    code8["info"]["engine_args"]["model"] = "dsv2lite"
    assert validated(code8, tmp_path).run.setup.step_doubt > 2 * dense


def test_a_bench_folder_that_lacks_something_is_refused_in_one_line(tmp_path: Path) -> None:
    meta = tmp_path / "RTX4090" / "model" / "vllm" / "meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text('{"engine_kwargs": {"model": "llama-3-8b", "max_num_seqs": 8}}')
    requests = meta.with_name("requests.jsonl")
    for content, complaint in [
        (None, "No such file"),
        ("", "is empty"),
        ("{", r"requests\.jsonl:1: not JSON"),
        ('{"request_id": 0}\n', "engine_kwargs.max_num_batched_tokens is None"),
    ]:
        if content is not None:
            requests.write_text(content)
        assert re.search(complaint, refused(meta))


REQUEST = {"arrival_time": 9.0, "queued_ts": 3.0, "first_token_ts": 4.0, "last_token_ts": 5.0,
           "input_toks": 20, "output_toks": 3}  # fmt: skip
STARTED = {"model": "llama-3-8b", "max_num_seqs": 8, "max_num_batched_tokens": 64}
TICKS = "t,running,waiting,kv_cache_pct\n1.0,1,0,0.5\n"


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("meta.json", "[]", "engine_kwargs is None; accepted: an object"),
        ("meta.json", {"engine_kwargs": {**STARTED, "model": "gpt-9"}}, "unknown model 'gpt-9'"),
        ("meta.json", {"engine_kwargs": {**STARTED, "data_parallel_size": 0}}, "from 1 to 1,024"),
        ("meta.json", {"engine_kwargs": STARTED, "kv_cache": {"block_size": "16"}}, "is '16'"),
        ("requests.jsonl", "7", "requests.jsonl:1.arrival_time is None; accepted: seconds"),
        ("requests.jsonl", {**REQUEST, "queued_ts": float("nan")}, "1.queued_ts is nan"),
        ("requests.jsonl", {**REQUEST, "input_toks": "9"}, "1.input_toks is '9'; accepted"),
        ("requests.jsonl", b"\xff\x00", "requests.jsonl: cannot be read"),
        ("requests.jsonl", b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 9, "jsonl: cannot be read"),
        ("requests.jsonl", "[" * 100_000, "requests.jsonl:1: not JSON: maximum recursion depth"),
        ("meta.json", "[" * 100_000, "meta.json: cannot be read: maximum recursion depth"),
        ("timeseries.csv", "", "timeseries.csv: is empty"),
        ("timeseries.csv", "t,running\n1,2\n", "accepted: rows of t, running, waiting"),
        ("timeseries.csv", TICKS + "soon,1,0,0\n", "accepted: rows of t, running, waiting"),
        ("timeseries.csv", None, "timeseries.csv: cannot be read: No such file"),
    ],
)
def test_a_bench_folder_that_holds_something_else_is_refused_in_one_line(
    tmp_path: Path, file: str, content: Any, complaint: str
) -> None:
    folder = tmp_path / "H200" / "model" / "vllm"
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text(json.dumps({"engine_kwargs": STARTED}))
    (folder / "requests.jsonl").write_text(json.dumps(REQUEST))
    (folder / "timeseries.csv").write_text(TICKS)
    assert isinstance(validate(folder), RunReport)
    if content is None:
        (folder / file).unlink()
    else:
        text = json.dumps(content) if isinstance(content, dict) else content
        (folder / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert complaint in refused(folder)


def refused(path: Path) -> str:
    """What is said about a recording that cannot be compared: one line that names a file."""
    with pytest.raises(TraceError) as refusal:
        validate(path)
    said = str(refusal.value)
    assert str(path.parent) in said
    assert "\n" not in said
    return said


def test_what_hardly_moves_does_not_move_by_minus_nothing() -> None:
    _, moved, still = sensitivity.shown({"p50_ttft_ms": -0.012, "peak_kv_cache_usage": -0.0001})
    assert moved.endswith("-1.2%")
    assert still.endswith("+0.0%")
    assert percent(-0.0001) == error_of(Comparison(1.0, 0.9999, 0.0, 2.0, None)).strip() == "+0.0%"


def test_a_replay_says_what_depends_on_step_times(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["replay", str(root / "traces/chat.jsonl.gz"), "--limit", "60", "--sensitivity"]
    assert run_kvsim([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["sensitivity"]
    assert found["p50_tpot_ms"] == pytest.approx(0.01, abs=0.004)
    assert run_kvsim(arguments) == 0
    assert "p50_tpot_ms" in capsys.readouterr().out
    assert run_kvsim(["replay", "-", "--sensitivity"]) != 0
    assert "replays the trace twice" in capsys.readouterr().err
