"""``kvsim step-time``: an iteration, operator by operator, as its user reads it."""

from __future__ import annotations

import json

import pytest

from kvsim.cli.app import run


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert run(["step-time", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_step_is_the_sum_of_its_operators(capsys) -> None:
    found = printed(capsys, "--model", "llama-3-8b", "--gpu", "h200", "--decode", "64x4096")
    assert found["label"] == "measured (h200)"
    assert sum(part["ms"] for part in found["operators"]) == pytest.approx(found["total_ms"])
    assert sum(part["share"] for part in found["operators"]) == pytest.approx(1, abs=0.01)
    low, high = found["interval_ms"]
    assert low <= found["total_ms"] <= high
    for part in found["operators"]:
        assert part["ms"] >= part["bound_ms"]
        assert part["provenance"] in ("measured", "interpolated", "extrapolated", "projected")


def test_prompts_and_decodes_add_up(capsys) -> None:
    decode = printed(capsys, "--decode", "64x4096")["total_ms"]
    both = printed(capsys, "--decode", "32x4096", "--decode", "32x4096", "--prefill", "2048x8192")
    assert both["total_ms"] > decode
    names = {part["name"] for part in both["operators"]}
    assert {"decode attention", "prompt attention", "output head", "KV write"} <= names


def test_two_groups_of_decodes_are_one_batch(capsys) -> None:
    once = printed(capsys, "--decode", "64x4096")
    twice = printed(capsys, "--decode", "32x4096", "--decode", "32x4096")
    assert once == twice


def test_shards_exchange_what_one_gpu_keeps_to_itself(capsys) -> None:
    alone = printed(capsys, "--model", "llama-3-70b", "--decode", "8x1000")
    shared = printed(
        capsys, "--model", "llama-3-70b", "--decode", "8x1000", "--tensor-parallel-size", "2"
    )
    names = {part["name"] for part in shared["operators"]}
    assert "all-reduce" in names
    assert "all-reduce" not in {part["name"] for part in alone["operators"]}
    assert shared["total_ms"] < alone["total_ms"]


def test_a_smaller_cache_is_read_faster(capsys) -> None:
    def attention(dtype: str) -> float:
        found = printed(capsys, "--decode", "128x16384", "--kv-cache-dtype", dtype)
        return next(p["ms"] for p in found["operators"] if p["name"] == "decode attention")

    assert attention("fp8") < attention("bf16")


@pytest.mark.parametrize("batch", ["64x4096", "1x20000", "4x100"])
def test_blocks_larger_than_any_that_was_timed_take_as_long_as_the_largest(capsys, batch) -> None:
    def attention(block_size: int) -> tuple[float, str]:
        found = printed(capsys, "--block-size", str(block_size), "--decode", batch)
        part = next(p for p in found["operators"] if p["name"] == "decode attention")
        return part["ms"], part["provenance"]

    assert attention(65_536) == (attention(256)[0], "extrapolated")


def test_another_gpu_is_projected(capsys) -> None:
    found = printed(capsys, "--gpu", "b200", "--decode", "8x1000")
    assert found["label"] == "projected from h200"
    assert {part["provenance"] for part in found["operators"]} == {"projected"}
    low, high = found["interval_ms"]
    assert high - low > 0.02 * found["total_ms"]


def test_the_table_names_every_operator_and_the_total(capsys) -> None:
    assert run(["step-time", "--decode", "1x100", "--model", "deepseek-v3", "--gpu", "h200"]) == 0
    text = capsys.readouterr().out
    for name in ("experts", "routing", "MLA decode attention", "total", "provenance"):
        assert name in text


@pytest.mark.parametrize(
    ("flags", "label", "operators"),
    [
        ([], "measured (h200)", set()),
        (["--weight-dtype", "fp8"], "measured (h200)", set()),
        (["--kv-cache-dtype", "fp8"], "measured (h200)", {"prompt attention"}),
        (["--kv-cache-dtype", "int8"], "measured (h200)", {"prompt attention", "KV write"}),
        (
            ["--model", "deepseek-v2-lite", "--kv-cache-dtype", "fp8"],
            "measured (h200), fp8 KV extrapolated",
            {"MLA decode attention", "prompt attention"},
        ),
        (["--weight-dtype", "int8"], "measured (h200), int8 weights extrapolated", {"mlp in"}),
        (["--weight-dtype", "int4"], "measured (h200), int4 weights extrapolated", {"mlp in"}),
        (
            ["--kv-cache-dtype", "int4", "--weight-dtype", "nvfp4"],
            "measured (h200), nvfp4 weights and int4 KV extrapolated",
            {"mlp in", "decode attention", "KV write", "prompt attention"},
        ),
        (
            ["--model", "deepseek-v3", "--tensor-parallel-size", "8"],
            "measured (h200), fp8 experts extrapolated",
            {"experts"},
        ),
    ],
)
def test_what_no_kernel_was_timed_with_is_not_called_measured(
    capsys, flags: list[str], label: str, operators: set[str]
) -> None:
    model = [] if "--model" in flags else ["--model", "llama-3.1-8b"]
    shapes = ["--decode", "64x4096", "--prefill", "512x0", "--gpu", "h200"]
    found = printed(capsys, *shapes, *model, *flags)
    assert found["label"] == label
    named = {
        "mlp in", "decode attention", "MLA decode attention", "KV write", "prompt attention", "experts",
    }  # fmt: skip
    rows = {one["name"]: one["provenance"] for one in found["operators"] if one["name"] in named}
    assert {name for name, kind in rows.items() if kind == "extrapolated"} == operators


@pytest.mark.parametrize(
    ("model", "shapes", "operator", "kind"),
    [
        ("llama-3-8b", ["--decode", "64x4096"], "decode attention", "measured"),
        (
            "llama-3-8b",
            ["--decode", "32x1000", "--decode", "32x7192"],
            "decode attention",
            "interpolated",
        ),
        ("llama-3-8b", ["--prefill", "512x0", "--prefill", "512x0"], "prompt attention", None),
        ("llama-3-8b", ["--decode", "128x4096"], "mlp in", "measured"),
        ("llama-3-8b", ["--decode", "512x4096"], "mlp in", "interpolated"),
        ("gemma-3-27b", ["--prefill", "512x4096"], "prompt attention (last 1024)", "extrapolated"),
        ("gemma-3-27b", ["--decode", "8x4096"], "decode attention (last 1024)", "extrapolated"),
        ("gpt-oss-120b", ["--decode", "8x128"], "decode attention (last 128)", "measured"),
        ("deepseek-v3.2", ["--decode", "400x100000"], "indexer", "extrapolated"),
    ],
)
def test_what_is_put_together_of_what_was_timed_is_not_called_measured(
    capsys, model: str, shapes: list[str], operator: str, kind: str | None
) -> None:
    parts = printed(capsys, "--model", model, "--gpu", "h200", *shapes)["operators"]
    found = next(part["provenance"] for part in parts if part["name"] == operator)
    assert found == kind or (kind is None and found != "measured")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--decode COUNTxCONTEXT"),
        (["--decode", "64"], "--decode '64'"),
        (["--decode", "0x5"], "--decode '0x5'"),
        (["--decode", "-1x5"], "--decode '-1x5'"),
        (["--prefill", "axb"], "--prefill 'axb'"),
        (["--decode", "1x99999999999"], "--decode"),
        (["--decode", "1x1", "--model", "lama-3-8b"], "llama"),
        (["--decode", "1x1", "--gpu", "h201"], "h200"),
        (["--decode", "1x1", "--kv-cache-dtype", "fp9"], "fp9"),
        (["--decode", "1x1", "--tensor-parallel-size", "3"], "tensor parallel"),
        (["--decode", "1x1", "--block-size", "0"], "--block-size"),
        (["--decode", "1x1", "--block-size", "70000"], "--block-size"),
    ],
)
def test_a_mistake_is_one_line(capsys, arguments: list[str], named: str) -> None:
    assert run(["step-time", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert named in error
