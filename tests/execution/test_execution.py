"""A replay on a device: what it says, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="executing a model needs the gpu extra")
pytest.importorskip("triton", reason="executing a model needs the gpu extra")

from kvsim.kernels.paged import PagedKV  # noqa: E402
from mistaken import FreesABlock  # noqa: E402
from tiny import CONFIG, scenario, verified  # noqa: E402

from kvsim.catalog.models import load_model  # noqa: E402
from kvsim.cli.app import run  # noqa: E402
from kvsim.compose import simulate  # noqa: E402
from kvsim.errors import CapacityError, ConfigError, VerificationError  # noqa: E402
from kvsim.execution import assembly  # noqa: E402
from kvsim.execution.assembly import DEVICES, check_weights  # noqa: E402
from kvsim.execution.fused import Kernels  # noqa: E402
from kvsim.execution.operators import References  # noqa: E402
from kvsim.execution.shape import shape_of  # noqa: E402
from kvsim.memory.mapped import MAPPED  # noqa: E402
from kvsim.scheduling.preemption.recompute import Recompute  # noqa: E402


def test_a_run_that_fails_leaves_no_folder(
    model: str, busy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MAPPED, "paged", FreesABlock)
    with pytest.raises(VerificationError):
        simulate(scenario(model), busy, verify=True, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def command(model: str, trace: str, *more: str) -> list[str]:
    """The command line of :func:`scenario`."""
    pool = ["--num-gpu-blocks-override", "15", "--block-size", "8", "--max-model-len", "64"]
    limits = ["--max-num-seqs", "8", "--max-num-batched-tokens", "40"]
    return ["replay", trace, "--model", model, "--executor", "cpu", *pool, *limits, *more]


def test_the_command_line_says_how_far_outputs_are_off(
    model: str, busy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(model, busy, "--verify", "--limit", "3")) == 0
    shown = capsys.readouterr()
    assert "executed on cpu times" in shown.out
    assert "94 outputs of 6 sequences agree with contiguous memory" in shown.err


def test_a_wrong_output_has_an_exit_code_of_its_own(
    model: str, busy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(MAPPED, "paged", FreesABlock)
    assert run(command(model, busy, "--verify")) == 6
    assert "differs by" in capsys.readouterr().err


@pytest.mark.parametrize("asked", [["replay", "--sensitivity"], ["plan"], ["recommend"]])
def test_what_simulates_takes_no_executor(
    busy: str, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    name, *more = asked
    assert run([name, busy, "--executor", "cpu", *more]) == 2
    assert "takes no --executor" in capsys.readouterr().err


def test_the_kernels_of_the_gpu_give_the_same_in_the_interpreter(
    write: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    least = {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = {**CONFIG, **least, "num_hidden_layers": 1, "intermediate_size": 32, "vocab_size": 32}
    small = write("config.json", json.dumps(config))
    line = {
        "arrival": 0.0,
        "prompt_tokens": 11,
        "output_tokens": 3,
        "hash_ids": [1],
        "hash_block": 8,
    }
    trace = write("two.jsonl", "".join(json.dumps(line) + "\n" for _ in range(2)))
    device = DEVICES["gpu" if torch.cuda.is_available() else "cpu"]
    interpreted = assembly.Device(device.name, device.dtype, Kernels, device.engine)
    monkeypatch.setitem(DEVICES, "cpu", interpreted)
    result = simulate(scenario(str(small), max_num_seqs=2), trace, verify=True)
    assert verified(result)["largest_error"] < device_tolerance(device)
    assert result.summary["prefix_cache_hits"] == 8


def test_keys_and_values_are_read_back_alike_by_both() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    kv = PagedKV(*torch.randn(2, 5, 16, 2, 32, device=device))
    table = torch.tensor([3, 0, 4], dtype=torch.int32, device=device)
    for found, wanted in zip(
        Kernels().read(kv, table, 37), References().read(kv, table, 37), strict=True
    ):
        assert torch.equal(found, wanted)


def device_tolerance(device: assembly.Device) -> float:
    """What the two passes may differ by."""
    return 1e-4 if device.dtype == torch.float32 else 5e-2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "deepseek-v2-lite"}, "2 kinds of layers"),
        ({"model": "qwen3-30b-a3b"}, "without a dense gated MLP"),
        ({"model": "phi-3.5-mini"}, "heads of 96 dimensions"),
        ({"tensor_parallel_size": 2}, "one device, and the scenario 2 GPUs"),
        ({"engine": "vllm"}, "an engine of its own"),
        ({"scheduler": "static"}, "accepted: chunked, continuous"),
        ({"allocator": "slab"}, "accepted: contiguous, buddy, paged, radix"),
        ({"executor": "abacus"}, "unknown executor 'abacus'"),
        ({"kv_cache_dtype": "int4"}, "int4 cannot be executed"),
        ({"kv_cache_dtype": "int8", "allocator": "buddy"}, "a scale for each token"),
        ({"preemption": {"name": "swap", "copies": "blocks"}}, "preemption.copies=gathered"),
    ],
)
def test_what_cannot_be_executed_is_refused_in_one_line(
    model: str, busy: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        simulate(scenario(model, **settings), busy)


def test_verify_without_an_executor_is_refused(model: str, busy: str) -> None:
    with pytest.raises(ConfigError, match="needs --executor"):
        simulate(scenario(model, executor=None), busy, verify=True)


def test_memory_that_is_not_there_is_refused(model: str, busy: str) -> None:
    with pytest.raises(CapacityError, match="GiB cannot be allocated on cpu"):
        simulate(scenario(model, allocator="contiguous", num_gpu_blocks_override=10**9), busy)


def test_a_host_without_the_space_to_swap_is_refused(model: str, busy: str) -> None:
    with pytest.raises(CapacityError, match=r"cannot be had: lower preemption\.host_gib"):
        simulate(scenario(model, preemption={"name": "swap", "host_gib": 1e6}), busy)


class Elsewhere(Recompute):
    """Says that it keeps KV, but not where."""


def test_a_preemption_whose_copies_nobody_knows_is_refused(model: str, busy: str) -> None:
    with pytest.raises(ConfigError, match="accepted: --preemption recompute, swap, auto"):
        simulate(scenario(model, preemption="test_execution:Elsewhere"), busy)


def test_weights_that_no_host_can_hold_are_refused_before_any_is_made(model: str) -> None:
    """Linux would promise the memory and end the process once it is used."""
    small = shape_of(load_model(model))
    check_weights(small, DEVICES["cpu"])
    with pytest.raises(CapacityError, match=r"GiB of weights do not fit in .* a smaller --model"):
        check_weights(replace(small, layers=10**12), DEVICES["cpu"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(model: str, busy: str) -> None:
    with pytest.raises(ConfigError, match="torch sees no GPU"):
        simulate(scenario(model, executor="gpu"), busy)
