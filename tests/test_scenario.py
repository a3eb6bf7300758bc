"""A scenario: where its settings come from, what it refuses, and that its hash means it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.catalog import load_gpu
from kvsim.compose import deploy, simulate
from kvsim.errors import CapacityError, ConfigError
from kvsim.registry import blueprint, options, resolve
from kvsim.scenario import Scenario
from kvsim.scenario_file import load
from kvsim.sizing import served_limits
from kvsim.slo import read_bound, read_slos, require
from kvsim.tables import NUMBERS

TOML = """
model = "llama-3-8b"
block_size = 32
slo = ["ttft=2s", "tpot=50ms"]

[allocator]
name = "contiguous"
fit = "best"
reservation = "oracle"

[workload]
limit = 7
"""
YAML = """
model: llama-3-8b
block_size: 32
slo: {ttft: 2.0, tpot: 0.05}
allocator: {name: contiguous, fit: best}
reservation: oracle
workload: {limit: 7}
"""


def test_toml_yaml_and_flags_say_the_same_thing_with_the_same_hash(write) -> None:
    flags = {
        "block_size": "32",
        "slo": ["ttft:2000", "tpot=50ms"],
        "allocator": "contiguous",
        "allocator.fit": "best",
        "allocator.reservation": "oracle",
        "workload.limit": "7",
    }
    scenarios = [
        load(write("s.toml", TOML), {}),
        load(write("s.yaml", YAML), {}),
        load(None, flags),
    ]
    assert len({scenario.hash for scenario in scenarios}) == 1
    assert scenarios[0].slo == {"ttft": 2.0, "tpot": 0.05}
    assert scenarios[0].reservation.name == "oracle"


def test_the_hash_is_the_same_in_every_process_and_changes_with_every_setting() -> None:
    script = "from kvsim import Scenario; print(Scenario(block_size=32).hash)"
    seen = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("0", "1")
    }
    assert seen == {Scenario(block_size=32).hash}
    assert Scenario(block_size=32).hash != Scenario().hash
    assert Scenario(workload={"limit": 3}).hash != Scenario().hash
    assert Scenario(allocator={"name": "paged", "x": 1}).hash != Scenario().hash


def test_what_a_run_writes_down_reads_back_as_the_same_scenario() -> None:
    scenario = load(None, {"allocator": "contiguous", "allocator.fit": "best", "slo": ["ttft=1s"]})
    assert Scenario.model_validate(scenario.model_dump(mode="json")) == scenario


def test_flags_win_over_the_file_and_one_option_leaves_the_others_alone(write) -> None:
    scenario = load(write("s.toml", TOML), {"block_size": "64", "allocator.reservation": "max"})
    assert scenario.block_size == 64
    assert scenario.reservation.name == "max"
    assert scenario.allocator.options == {"fit": "best"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"block_sise": 16}, "unknown setting 'block_sise'; did you mean 'block_size'?"),
        ({"workload.limitt": 1}, "unknown setting 'limitt'; did you mean 'limit'?"),
        ({"block_size": "-3"}, "--block-size = '-3'"),
        ({"block_size": "many"}, "--block-size = 'many'"),
        ({"gpu_memory_utilization": "nan"}, "--gpu-memory-utilization = 'nan'"),
        ({"gpu_memory_utilization": "1.5"}, "less than or equal to 1"),
        ({"watermark": "inf"}, "--watermark = 'inf'"),
        ({"replicas": "0"}, "--replicas = '0'"),
        ({"seed": "-1"}, "--seed = '-1'"),
        ({"max_num_seqs": 9, "max_num_batched_tokens": 8}, "could not decode"),
        ({"slo": ["ttft"]}, "must be like ttft=2s"),
        ({"slo": ["ttft=2"]}, "a time needs a unit"),
        ({"slo": ["ttft=nans"]}, "a time needs a unit"),
        ({"slo": ["ttft=0s"]}, "must be above zero"),
        ({"slo": ["ttft_p99=2s"]}, "use --fail-on"),
        ({"slo": ["tfft=2s"]}, "did you mean 'ttft'?"),
        ({"workload.arrival": "sometimes"}, "'as-is', 'poisson' or 'gamma'"),
        ({"workload.request_rate": "0"}, "--request-rate = '0'"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line(flags, message) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        load(None, flags)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.toml", "block_size = ", "s.toml: "),
        ("s.toml", "blok_size = 3", "s.toml: unknown setting 'blok_size'"),
        ("s.toml", "block_size = 0", "s.toml: block_size = 0"),
        ("s.toml", '[allocator]\nblock_size = 8\nname = "paged"\n[x]\n', "unknown setting 'x'"),
        ("s.toml", "block_size = 16\n[allocator]\nblock_size = 8", "contradicts 16"),
        ("s.yaml", "a: [", "s.yaml: "),
        ("s.yaml", "a: 2026-99-01", "s.yaml: month must be in 1..12"),
        ("s.yaml", "[" * 9_000, "s.yaml: maximum recursion depth"),
        ("s.toml", "a = " + "[" * 9_000, "s.toml: maximum recursion depth"),
        ("s.yaml", "- 1", "a scenario is a table of settings"),
        ("s.yaml", "model: !!python/object/apply:os.getcwd []", "s.yaml: "),
        ("s.json", "{}", "ends in .toml, .yaml or .yml"),
    ],
)
def test_a_wrong_file_is_refused_by_name(write, name, text, message) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        load(write(name, text), {})


def test_a_missing_file_is_refused_by_name(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        load(tmp_path / "nowhere.toml", {})


@given(st.dictionaries(st.sampled_from(sorted(Scenario.model_fields)), st.text(max_size=5)))
def test_any_text_is_a_scenario_or_a_readable_mistake(flags) -> None:
    with contextlib.suppress(ConfigError):
        assert load(None, flags).hash


# Names to objects.


def test_limits_left_open_are_those_that_vllm_serves_with() -> None:
    assert served_limits(load_gpu("h200")) == (8_192, 1_024)
    assert served_limits(load_gpu("a100-80gb")) == (2_048, 256)
    assert served_limits(load_gpu("b200")) == (16_384, 1_024)
    few = deploy(Scenario(max_num_batched_tokens=100)).scenario
    assert few.max_num_seqs == 100


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "lama-3-8b"}, "did you mean"),
        ({"gpu": "h2000"}, "did you mean"),
        ({"allocator": "pagd"}, "unknown allocator 'pagd'; did you mean 'paged'?"),
        ({"scheduler": "chunk"}, "did you mean 'chunked'?"),
        ({"router": "round_robin"}, "did you mean 'round-robin'?"),
        ({"cost_model": "rofline"}, "unknown cost model 'rofline'; did you mean 'roofline'?"),
        ({"eviction": "lur"}, "did you mean 'lru'?"),
        ({"reservation": "oracel"}, "did you mean 'oracle'?"),
        (
            {"allocator": {"name": "contiguous", "fitt": "best"}},
            "unknown option 'fitt'; did you mean 'fit'",
        ),
        ({"allocator": {"name": "contiguous", "fit": "worst"}}, "'first' or 'best'"),
        ({"router": {"name": "random", "bias": 3}}, "unknown option 'bias'; it has none"),
        ({"allocator": "nowhere.at:All"}, "cannot be imported"),
        ({"allocator": "json:dumps"}, "is not a class"),
        ({"router": "fractions:Fraction"}, "router 'fractions:Fraction' has no route"),
    ],
)
def test_a_wrong_name_or_option_is_refused_with_advice(settings, message) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        deploy(Scenario(**settings))


def test_a_model_that_does_not_fit_is_a_capacity_error() -> None:
    with pytest.raises(CapacityError, match="does not fit"):
        deploy(Scenario(model="llama-3-70b", gpu="h100"))


def test_a_plug_in_that_asks_for_the_unknown_is_refused() -> None:
    class Needy:
        def __init__(self, moon):
            pass

    with pytest.raises(ConfigError, match=r"widget needy: its constructor asks for 'moon'"):
        blueprint("widget needy", Needy, {}, {}).build(sun=1)


class Widget:
    def __init__(self, allocator, *, size: int | None = 3, kind: str = "a", leaps: bool = True):
        self.size, self.kind, self.leaps = size, kind, leaps


def test_the_constructor_is_the_schema_of_a_plug_in() -> None:
    assert list(options(Widget)) == ["size", "kind", "leaps"]
    plan = blueprint("widget", Widget, {"leaps": False, "seed": 1}, {"size": "none", "kind": "7"})
    widget = plan.build(allocator=None, gpu=None)
    assert (widget.size, widget.kind, widget.leaps) == (None, "7", False)
    with pytest.raises(ConfigError, match=r"size = 'x': input should be a valid integer"):
        blueprint("widget", Widget, {}, {"size": "x"})


def test_a_name_with_a_colon_is_imported_from_the_working_folder(tmp_path, monkeypatch) -> None:
    (tmp_path / "mine_for_test.py").write_text("class Mine:\n    pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert resolve("allocator", object, {}, "mine_for_test:Mine").__name__ == "Mine"


# Objectives.


def test_objectives_read_as_the_benches_write_them() -> None:
    assert read_slos(["ttft:500", "tpot=50ms", "e2el=2s"]) == {
        "ttft": 0.5,
        "tpot": 0.05,
        "e2el": 2.0,
    }
    assert read_bound("ttft_p99=2s").key == "p99_ttft_ms"
    assert read_bound("queue_time=2s").key == "mean_queue_time_ms"


# A run through the public interface.


def few_requests(folder: Path) -> Path:
    path = folder / "few.jsonl"
    row = '{{"timestamp": {0}, "input_length": 700, "output_length": 20, "hash_ids": [0, {0}]}}\n'
    path.write_text("".join(row.format(time) for time in range(1, 400, 20)))
    return path


@pytest.mark.parametrize("allocator", ["contiguous", "buddy", "paged", "radix"])
@pytest.mark.parametrize("scheduler", ["static", "continuous", "chunked"])
def test_every_allocator_runs_under_every_scheduler(tmp_path, allocator, scheduler) -> None:
    scenario = Scenario(allocator=allocator, scheduler=scheduler, num_gpu_blocks_override=4_000)
    result = simulate(scenario, few_requests(tmp_path), check=True)
    assert result.summary["completed"] == 20
    leapless = simulate(scenario, few_requests(tmp_path), leaps=False)
    for name in NUMBERS:
        assert getattr(leapless.requests, name).tolist() == getattr(result.requests, name).tolist()


def test_a_summary_has_every_statistic_that_can_be_required(tmp_path) -> None:
    from kvsim.slo import LATENCIES, STATISTICS

    summary = simulate(Scenario(), few_requests(tmp_path)).summary
    for metric in LATENCIES:
        for statistic in STATISTICS:
            require([read_bound(f"{metric}_{statistic}=1e6s")], summary)


def test_the_watcher_sees_every_request_on_its_way(tmp_path) -> None:
    seen = []

    def watch(requests):
        for request in requests:
            seen.append(request.row)
            yield request

    simulate(Scenario(replicas=3), few_requests(tmp_path), watch=watch)
    assert seen == list(range(20))


def test_the_default_number_of_sequences_is_lowered_until_a_pool_is_left() -> None:
    tight = deploy(Scenario(model="llama-3-70b", gpu="h100", tensor_parallel_size=2)).scenario
    roomy = deploy(Scenario(model="llama-3-70b", gpu="h200", tensor_parallel_size=4)).scenario
    assert tight.max_num_seqs is not None
    assert 128 <= tight.max_num_seqs < 1_024 == roomy.max_num_seqs


@pytest.mark.parametrize("allocator", ["paged", "radix"])
def test_without_prefix_caching_nothing_hits_and_nothing_is_kept(
    root: Path, allocator: str
) -> None:
    scenario = Scenario(allocator=allocator, enable_prefix_caching=False, workload={"limit": 200})
    summary = simulate(scenario, root / "traces" / "chat.jsonl.gz", check=True).summary
    assert summary["completed"] == 200
    assert summary["prefix_cache_hits"] == summary["kv_memory"]["cached"] == 0
