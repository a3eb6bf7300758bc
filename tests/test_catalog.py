"""Models, GPUs and prices: the catalog says what its sources say, and finds things by their names."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kvsim.catalog import (
    electricity,
    gpu_names,
    load_gpu,
    load_model,
    model_names,
    prices,
    regional_prices,
)
from kvsim.catalog.hardware import gpu_index
from kvsim.catalog.models import entries
from kvsim.errors import ConfigError
from kvsim.layout import KVLayout

Rows = Callable[[str], list[dict[str, str]]]


@pytest.fixture(scope="module")
def facts(shared: Path) -> Rows:
    """Rows of a table of facts."""

    def read(name: str) -> list[dict[str, str]]:
        with (shared / "facts" / name).open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    return read


def test_every_model_of_the_facts_has_its_published_kv_sizes(facts: Rows) -> None:
    wrong = {}
    for row in facts("models.csv"):
        layout = KVLayout(load_model(row["model_id"]), "bf16")
        figures = (
            layout.bytes_per_token,
            layout.short_bytes_per_token,
            layout.window_bytes_per_sequence,
            layout.whole.state,
        )
        expected = tuple(
            float(row[column])
            for column in (
                "kv_bytes_per_token_bf16",
                "kv_bytes_per_token_short_seq_bf16",
                "window_kv_cap_bytes_per_seq_bf16",
                "recurrent_state_bytes_per_seq_bf16",
            )
        )
        if figures != expected:
            wrong[row["model_id"]] = (figures, expected)
    assert not wrong


def test_every_model_of_the_facts_has_its_dimensions_and_parameters(facts: Rows) -> None:
    wrong = {}
    for row in facts("models.csv"):
        model = load_model(row["model_id"])
        seen = {
            "layers": len(model.layers),
            "hidden": model.hidden,
            "vocab": model.vocab,
            "max_positions": model.max_positions,
            "params_total_b": round(model.parameters / 1e9, 3),
            "params_active_b": round(model.active_parameters / 1e9, 3),
            "tie_embeddings": model.tied,
        }
        different = {
            name: (value, row[name])
            for name, value in seen.items()
            if row[name] and str(value) != row[name] and not close(value, row[name])
        }
        if different or model.verified != row["verified"].startswith("yes"):
            wrong[row["model_id"]] = different
    assert not wrong


def close(value: object, text: str) -> bool:
    return isinstance(value, float) and abs(value - float(text)) < 0.0011


def test_every_gpu_of_the_facts_has_its_figures(facts: Rows) -> None:
    for row in facts("gpus.csv"):
        gpu = load_gpu(row["gpu"].split(" (")[0])
        assert gpu.memory_gb == float(row["memory_gb"])
        assert gpu.bandwidth == float(row["hbm_bw_gb_s"]) * 1e9
        assert gpu.bf16_flops == float(row["bf16_dense_tflops"]) * 1e12
    assert len(gpu_names()) == len(facts("gpus.csv"))


def test_every_price_of_the_facts_is_there_with_source_and_date(facts: Rows) -> None:
    listed = [row for row in facts("prices.csv") if row["provider"] != "electricity"]
    known = [price.usd_per_gpu_hour for price in prices()]
    assert known[: len(listed)] == [float(row["usd_per_gpu_hour"]) for row in listed]
    assert {price.kind[:2] for price in prices()[len(listed) :]} == {"1y", "3y"}
    assert all(price.source and price.date for price in prices())
    assert len(electricity()) == len(facts("prices.csv")) - len(listed)


def test_every_price_by_region_is_that_of_the_snapshot(shared: Path) -> None:
    path = shared / "facts" / "gpu_price_snapshot_2026-06-01.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        snapshot = {
            (row["provider"], row["gpu_type"], row["region"], row["is_spot"]): row
            for row in map(json.loads, lines)
        }
    listed = [price for name in gpu_names() for price in regional_prices(name)]
    assert len(listed) > 700
    for price in listed:
        row = snapshot[price.provider, price.gpu, price.region, price.kind == "spot"]
        assert price.usd_per_gpu_hour == pytest.approx(row["price_per_gpu_hour_usd"], abs=5e-5)
        assert row["snapshot_timestamp"].startswith(price.date)
        assert price.source


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("llama-3-8b", "meta-llama/Meta-Llama-3-8B"),
        ("Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B"),
        ("llama-3-70b", "meta-llama/Meta-Llama-3-70B"),
        ("qwen2.5-32b", "Qwen/Qwen2.5-32B-Instruct"),
        ("QWEN/QWEN2.5-32B-INSTRUCT", "Qwen/Qwen2.5-32B-Instruct"),
        ("deepseek-v3", "deepseek-ai/DeepSeek-V3"),
        ("mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1"),
    ],
)
def test_a_model_is_found_by_friendly_name_or_hugging_face_id(name: str, found: str) -> None:
    assert load_model(name).name == found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("h200", "H200-SXM-141GB"),
        ("H100-SXM", "H100-SXM5-80GB"),
        ("a100-80gb", "A100-SXM4-80GB"),
        ("a100-40gb", "A100-SXM4-40GB"),
        ("l40s", "L40S-48GB"),
        ("MI300X", "MI300X-192GB"),
    ],
)
def test_a_gpu_is_found_by_friendly_name(name: str, found: str) -> None:
    assert load_gpu(name).name == found


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'llama-3-8b'"):
        load_model("lama-3-8b")
    with pytest.raises(ConfigError, match="did you mean 'h200'"):
        load_gpu("h2000")


@pytest.mark.parametrize("name", ["", " ", "x" * 5000, "a\0b", "a\0b.json", "/dev/null"])
def test_what_is_neither_a_name_nor_a_path_is_unknown(name: str) -> None:
    with pytest.raises(ConfigError):
        load_model(name)


def test_no_name_means_two_things() -> None:
    names = [name for entry in entries().values() for name in (entry["id"], *entry["aliases"])]
    assert len({name.lower() for name in names}) == len(entries())
    assert len({entry["id"] for entry in entries().values()}) == len(model_names())
    assert len(gpu_index()) > len(gpu_names())


def test_every_model_says_where_its_dimensions_were_read_and_when() -> None:
    models = [load_model(name) for name in model_names()]
    assert all(model.source and model.date for model in models)
    assert sum(model.verified for model in models) == 48


def test_p4d_is_the_40_gb_machine_at_its_price_since_june_2025() -> None:
    latest = next(price for price in prices("a100-40gb") if price.sku == "p4d.24xlarge")
    assert latest.usd_per_hour == 21.957642
    assert latest.gpus == 8
    assert {price.sku for price in prices("a100-80gb", provider="aws")} == {"p4de.24xlarge"}


def test_rates_are_dense_ones() -> None:
    assert load_gpu("l40s").fp8_flops == 733e12
    assert load_gpu("l4").bf16_flops == 121e12


def test_memory_is_what_the_device_reports_where_that_is_known() -> None:
    h200 = load_gpu("h200")
    assert h200.memory_reported
    assert h200.memory_bytes / 2**30 == pytest.approx(139.81)
    assert not load_gpu("tpu-v5e").memory_reported
    assert load_gpu("tpu-v5e").memory_bytes == 16 * 10**9
