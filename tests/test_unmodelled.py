"""What a recorded engine was started with is honoured, refused or named: nothing passes in silence."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvsim.cli.app import run
from kvsim.validation.bench_run import setup_of as bench_setup
from kvsim.validation.engine import Setup
from kvsim.validation.unmodelled import DEFAULTS, NEUTRAL
from kvsim.validation.vllm_run import setup_of as run_setup

MADE = {"num_gpu_blocks": 900, "block_size": 16, "max_num_seqs": 8, "max_num_batched_tokens": 64}
LIMITS = {"max_num_seqs": 8, "max_num_batched_tokens": 64}
FOLDER = Path("H200/model/vllm")


def of_run(**given: Any) -> Setup:
    """The engine of a run that was recorded request by request."""
    started = {"model": "llama-3-8b", **given}
    return run_setup(Path("run.json"), {**MADE, "engine_args": started}, None)


def of_bench(**given: Any) -> Setup:
    """The engine of a benchmark's folder."""
    recorded = {"engine_kwargs": {"model": "llama-3-8b", **LIMITS, **given}}
    return bench_setup(FOLDER, recorded, None)


WHERE = {of_run: "run.json: info.engine_args", of_bench: f"{FOLDER}/meta.json: engine_kwargs"}
both = pytest.mark.parametrize("read", WHERE, ids=["run", "bench"])


@both
@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (
            "kv_transfer_config",
            {"kv_connector": "NixlConnector"},
            "{'kv_connector': 'NixlConnector'}",
        ),
        ("compilation_config", 0, "0"),
        ("hf_overrides", {"num_hidden_layers": 2}, "{'num_hidden_layers': 2}"),
        ("enable_expert_parallel", True, "True"),
        ("stream_interval", 8, "8"),
        ("disable_cascade_attn", False, "False"),
        ("an_argument_of_another_release", False, "False"),
    ],
)
def test_an_argument_that_is_not_modelled_is_named_with_its_value(
    read: Callable[..., Setup], name: str, value: object, told: str
) -> None:
    [line] = read(**{name: value}).unmodelled
    assert line == f"{WHERE[read]}.{name} is {told}, which is not modelled"


@both
def test_each_part_of_a_compilation_is_named(read: Callable[..., Setup]) -> None:
    given = {"cudagraph_mode": "NONE", "mode": 3, "cache_dir": "/x", "compile_sizes": []}
    [line] = read(compilation_config=given).unmodelled
    assert line.endswith("compilation_config.cudagraph_mode is 'NONE', which is not modelled")


@both
def test_what_changes_nothing_is_not_named(read: Callable[..., Setup]) -> None:
    neutral = dict.fromkeys(NEUTRAL, "anything")
    defaults = {name: accepted[0] for name, accepted in DEFAULTS.items()}
    absent = {"kv_transfer_config": None, "hf_overrides": {}, "logits_processors": []}
    assert read(**neutral, **defaults, **absent).unmodelled == ()


@both
def test_sizes_of_graphs_are_taken_from_wherever_they_were_given(
    read: Callable[..., Setup],
) -> None:
    sizes = {"cudagraph_capture_sizes": [4, 1, 2]}
    for given in (sizes, {"compilation_config": sizes}):
        setup = read(**given)
        assert (setup.captured, setup.unmodelled) == ((1, 2, 4), ())
    assert read().captured is None
    assert read(**sizes, enforce_eager=True).captured == ()


def test_a_benchmark_heeds_the_arguments_that_a_run_heeds() -> None:
    given: dict[str, Any] = {
        "long_prefill_token_threshold": 32,
        "quantization": "fp8",
        "load_format": "dummy",
    }
    ours, theirs = of_bench(**given), of_run(**given)
    assert (ours.longest_chunk, ours.step) == (theirs.longest_chunk, theirs.step)
    assert ours.step["weight_dtype"] == "fp8"
    assert not of_bench(enable_prefix_caching=False).prefix_caching
    assert of_bench(kv_offloading_size=1).offloading == 2**30
    assert of_bench(block_size=32, num_gpu_blocks_override=70).num_blocks == 70
    assert of_bench(gpu_memory_utilization=0.5).num_blocks < of_bench().num_blocks / 1.9


def test_bytes_of_kv_are_named_only_where_the_blocks_were_not_recorded() -> None:
    [line] = of_bench(kv_cache_memory_bytes=2**30).unmodelled
    assert "kv_cache_memory_bytes is 1073741824" in line
    assert of_bench(kv_cache_memory_bytes=2**30, num_gpu_blocks_override=70).unmodelled == ()
    assert of_run(kv_cache_memory_bytes=2**30, gpu_memory_utilization=0.5).unmodelled == ()


@pytest.mark.parametrize(
    "name", ["vllm_h200/l8b_default__code8", "vllm_scheduler/blocks12000__agent1"]
)
def test_validating_warns_on_stderr_once_for_each(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = Path(__file__).parent / "golden" / f"{name}.json.gz"
    recording = json.loads(gzip.decompress(golden.read_bytes()))
    part = "info" if "info" in recording else "meta"
    path = tmp_path / golden.name.removesuffix(".gz")
    printed = []
    for given in ({"seed": 3}, {"policy": "priority"}):
        path.write_text(json.dumps({**recording, part: {**recording[part], **given}}))
        workload = next(golden.parent.glob(f"workloads/{name.rpartition('__')[2]}.jsonl*"))
        assert run(["validate", str(path), "--workload", str(workload), "--json"]) == 0
        printed.append(capsys.readouterr())
    where = f"{path}: {part}.policy"
    assert printed[0].out == printed[1].out
    assert printed[0].err == ""
    assert printed[1].err == f"kvsim: warning: {where} is 'priority', which is not modelled\n"
