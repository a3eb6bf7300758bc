"""``kvsim size`` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kvsim
from kvsim.cli.app import run

Size = Callable[..., dict[str, Any]]


@pytest.fixture
def sized(capsys: pytest.CaptureFixture[str]) -> Size:
    """Run ``kvsim size ... --json`` and read its one object."""

    def call(*arguments: str) -> dict[str, Any]:
        assert run(["size", *arguments, "--json"]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return dict(json.loads(out))

    return call


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run ``kvsim size`` expecting an exit code; returns the one line that explains it."""

    def call(code: int, *arguments: str) -> str:
        assert run(["size", *arguments]) == code
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1
        return err

    return call


LIMITS = ("--max-num-batched-tokens", "2048", "--max-num-seqs", "128")
"""Of the engines whose pools are known."""


def test_it_prints_one_json_object_with_everything(sized: Size) -> None:
    answer = sized("--model", "llama-3-8b", "--gpu", "h200", "--tokens", "8192", *LIMITS)
    assert answer["kv_bytes_per_token"] == 131_072
    assert answer["fixed_bytes_per_sequence"] == 0
    assert answer["kv_bytes_per_sequence"] == 2**30
    assert answer["num_gpu_blocks"] == pytest.approx(57_537, rel=0.005)
    assert answer["kv_tokens_capacity"] == 16 * answer["num_gpu_blocks"]
    assert answer["max_concurrency"] == answer["num_gpu_blocks"] / 512
    assert sum(answer["waterfall_bytes_per_gpu"].values()) == answer["memory_bytes_per_gpu"]


@pytest.mark.parametrize("gpu", ["h200", "l4"])
def test_it_finds_the_pool_that_a_replay_has(sized: Size, root: Path, gpu: str) -> None:
    scenario = kvsim.Scenario(gpu=gpu, workload={"limit": 1})
    replayed = kvsim.simulate(scenario, root / "traces" / "chat.jsonl.gz").summary
    # Of a paged pool one block is never given out.
    assert sized("--gpu", gpu)["num_gpu_blocks"] == replayed["kv_blocks_total"] + 1


def test_windows_and_state_are_told_apart_from_what_grows(sized: Size) -> None:
    answer = sized("--model", "gpt-oss-20b", "--gpu", "h100", "--tokens", "1000")
    assert answer["kv_bytes_per_token"] == 24_576
    assert answer["fixed_bytes_per_sequence"] == 3_145_728
    assert answer["kv_bytes_per_sequence"] == 1000 * 24_576 + 3_145_728


def test_a_split_model_has_more_room(sized: Size) -> None:
    options = ("--model", "llama-3-70b", "--gpu", "a100-80gb", "--gpu-memory-utilization", "0.9",
               *LIMITS)  # fmt: skip
    answer = sized(*options, "--tensor-parallel-size", "8")
    assert answer["kv_tokens_capacity"] == pytest.approx(1.33e6, rel=0.01)
    assert answer["kv_bytes_per_token"] == 327_680
    assert answer["kv_bytes_per_token_per_gpu"] == 40_960
    piped = sized(*options, "--tensor-parallel-size", "4", "--pipeline-parallel-size", "2")
    assert piped["kv_tokens_capacity"] == pytest.approx(answer["kv_tokens_capacity"], rel=0.05)


def test_the_kv_dtype_halves_or_better(sized: Size) -> None:
    plain = sized("--kv-cache-dtype", "bf16")["num_gpu_blocks"]
    assert sized("--kv-cache-dtype", "fp8")["num_gpu_blocks"] in (2 * plain, 2 * plain + 1)
    small = sized("--kv-cache-dtype", "nvfp4")["num_gpu_blocks"]
    assert small == pytest.approx(plain * 32 / 9, rel=1e-4)


def test_a_config_file_is_as_good_as_a_name(sized: Size, write: Callable[..., Any]) -> None:
    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "intermediate_size": 512,
        "vocab_size": 1000,
    }
    path = write("config.json", json.dumps(config))
    answer = sized("--model", str(path), "--gpu", "l4")
    assert answer["kv_bytes_per_token"] == 2 * 2 * 64 * 2
    assert answer["tokens"] == 8192


def test_people_get_an_aligned_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["size", "--model", "deepseek-v3.2", "--tensor-parallel-size", "8"]) == 0
    out, _ = capsys.readouterr()
    memory = [line for line in out.splitlines() if line.endswith("%")]
    assert len({len(line) for line in memory}) == 1
    assert "KV pool" in out
    assert "index bytes per token" in out


def test_what_cannot_fit_is_exit_4_with_its_arithmetic(refused: Callable[..., str]) -> None:
    line = refused(4, "--model", "llama-3-70b", "--gpu", "h100")
    assert "141.1 GB of weights" in line
    assert "the smallest tensor parallel size that fits is 2" in line


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--model", "lama-3-8b"), "did you mean 'llama-3-8b'"),
        (("--gpu", "h20O"), "did you mean 'h200'"),
        (("--model", "no/such/config.json"), "no/such/config.json"),
        (("--kv-cache-dtype", "fp9"), "fp8"),
        (("--tensor-parallel-size", "3"), "32 query heads"),
        (("--pipeline-parallel-size", "99"), "1 to 32"),
        (("--tokens", "0"), "tokens 0"),
        (("--block-size", "0"), "--block-size = 0"),
        (("--gpu-memory-utilization", "nan"), "--gpu-memory-utilization = nan"),
        (("--weight-dtype", "fp7"), "weight dtype 'fp7'"),
        (("--ssm-state-dtype", "fp8"), "state dtype 'fp8'"),
    ],
)
def test_a_wrong_option_is_exit_2_and_one_line(
    refused: Callable[..., str], arguments: tuple[str, ...], part: str
) -> None:
    assert part in refused(2, *arguments)
