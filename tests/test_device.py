"""A recording is of the GPU that its user names, or that it names itself; no other's certainty is claimed."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvsim.catalog import gpu_names, load_gpu
from kvsim.cli.app import run as run_kvsim
from kvsim.errors import ConfigError, TraceError
from kvsim.validation import RunReport, validate
from kvsim.validation.engine import PROJECTED

GOLDEN = Path(__file__).parent / "golden"
CODE8 = GOLDEN / "vllm_h200" / "l8b_default__code8.json.gz"
WORKLOAD = GOLDEN / "vllm_h200" / "workloads" / "code8.jsonl.gz"
DECISIONS = sorted((GOLDEN / "vllm_scheduler").glob("*.json.gz"))[0]


def run_that_says(folder: Path, **info: object) -> Path:
    """A measured run whose recording says more of its engine."""
    recording = json.loads(gzip.decompress(CODE8.read_bytes()))
    recording["info"].update(info)
    path = folder / "x__code8.json"
    path.write_text(json.dumps(recording))
    return path


def bench_that_says(folder: Path, name: str, **meta: object) -> Path:
    """A folder of LLMServingSim's benchmark, in a folder called ``name``."""
    place = folder / name / "model" / "vllm"
    place.mkdir(parents=True)
    started = {"model": "llama-3-8b", "max_num_seqs": 8, "max_num_batched_tokens": 64}
    request = {"arrival_time": 9.0, "queued_ts": 3.0, "first_token_ts": 4.0, "last_token_ts": 5.0}
    request |= {"input_toks": 20, "output_toks": 3}
    (place / "meta.json").write_text(json.dumps({"engine_kwargs": started, **meta}))
    (place / "requests.jsonl").write_text(json.dumps(request))
    (place / "timeseries.csv").write_text("t,running,waiting,kv_cache_pct\n1.0,1,0,0.5\n")
    return place


def found(path: Path, gpu: str | None = None) -> RunReport:
    seen = validate(path, WORKLOAD if path.suffix == ".json" else None, gpu=gpu)
    assert isinstance(seen, RunReport)
    return seen


def device(path: Path, gpu: str | None = None) -> tuple[str, str]:
    setup = found(path, gpu).run.setup
    return setup.gpu.name, setup.device.source


# Names.


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("NVIDIA H200", "H200-SXM-141GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("NVIDIA H100 PCIe", "H100-PCIE-80GB"),
        ("NVIDIA H100 NVL", "H100-NVL-94GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIE-80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"),
        ("NVIDIA L40S", "L40S-48GB"),
        ("NVIDIA L4", "L4-24GB"),
        ("NVIDIA A10G", "A10G-24GB"),
        ("NVIDIA B200", "B200-SXM-180GB"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090-24GB"),
        (
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "RTX-PRO-6000-Blackwell-Server-96GB",
        ),
        ("RTXPRO6000", "RTX-PRO-6000-Blackwell-Server-96GB"),
        ("AMD Instinct MI300X", "MI300X-192GB"),
    ],
)
def test_a_gpu_is_known_by_what_it_calls_itself(said: str, name: str) -> None:
    assert load_gpu(said).name == name


@pytest.mark.parametrize(
    "said",
    [
        "NVIDIA H20",
        "NVIDIA H200 NVL",
        "NVIDIA L40",
        "NVIDIA A10",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA",
        "",
    ],
)
def test_what_is_only_called_nearly_so_is_another_gpu(said: str) -> None:
    with pytest.raises(ConfigError, match="unknown gpu"):
        load_gpu(said)


def test_every_name_of_the_catalog_is_of_its_own_gpu() -> None:
    assert [load_gpu(name.upper().replace("-", " ")).name for name in gpu_names()] == gpu_names()


# Who says what it was.


@pytest.mark.parametrize(
    "info",
    [
        {"gpu": "l40s"},
        {"gpu_name": "L40S-48GB"},
        {"device_name": "NVIDIA L40S"},
        {"hardware": {"device_name": "NVIDIA L40S", "device_count": 1}},
        {"gpu": "l40s", "gpu_name": "L40S-48GB", "hardware": {"device_name": "NVIDIA L40S"}},
    ],
)
def test_runs_and_folders_are_of_the_gpu_that_they_name(
    tmp_path: Path, info: dict[str, Any]
) -> None:
    path = run_that_says(tmp_path, **info)
    assert device(path) == ("L40S-48GB", "recording")
    assert not found(path).unmodelled
    assert device(bench_that_says(tmp_path, "H200", **info)) == ("L40S-48GB", "recording")


def test_a_folder_names_the_gpu_of_a_run_that_does_not_and_a_file_is_assumed_to_be_an_h200(
    tmp_path: Path,
) -> None:
    assert device(bench_that_says(tmp_path, "A100")) == ("A100-SXM4-80GB", "folder")
    assert device(run_that_says(tmp_path)) == ("H200-SXM-141GB", "assumption")


def test_the_user_knows_better(tmp_path: Path) -> None:
    stated = run_that_says(tmp_path, gpu="l4")
    unknown = bench_that_says(tmp_path, "cluster7", hardware={"device_name": "NVIDIA H20"})
    for path in (stated, unknown):
        assert device(path, "a100") == ("A100-SXM4-80GB", "--gpu")


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({"gpu": "NVIDIA H20"}, ".gpu: unknown gpu 'NVIDIA H20'"),
        (
            {"hardware": {"device_name": "H201"}},
            "hardware.device_name: unknown gpu 'H201'; did you",
        ),
        (
            {"gpu": "l4", "device_name": "A100"},
            "device_name is 'A100'; accepted: one GPU, or --gpu",
        ),
        ({"gpu_name": 4090}, ".gpu_name is 4090; accepted: a text"),
        ({"hardware": {"gpu": ["l4"]}}, "hardware.gpu is ['l4']; accepted: a text"),
    ],
)
def test_a_gpu_that_cannot_be_is_refused_in_one_line(
    tmp_path: Path, info: dict[str, Any], said: str
) -> None:
    for path in (run_that_says(tmp_path, **info), bench_that_says(tmp_path, "H200", **info)):
        with pytest.raises(TraceError) as refusal:
            found(path)
        assert str(path) in str(refusal.value)
        assert said in str(refusal.value)
        assert "\n" not in str(refusal.value)
        if "unknown" in said:
            assert str(refusal.value).endswith("accepted: --gpu NAME, whatever is recorded")


def test_a_folder_that_is_named_after_no_gpu_is_told_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="names no GPU, its folder does: unknown gpu 'cluster7'"):
        found(bench_that_says(tmp_path, "cluster7"))


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (["--gpu", "h201"], 2, "unknown gpu 'h201'; did you mean 'h200'?"),
        (["--gpu", ""], 2, "unknown gpu ''"),
    ],
)
def test_a_flag_that_names_no_gpu_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], flags: list[str], code: int, said: str
) -> None:
    assert run_kvsim(["validate", str(CODE8), *flags]) == code
    assert said in capsys.readouterr().err


def test_recorded_decisions_heed_no_gpu_and_no_calibration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for flags in (["--gpu", "l40s"], ["--calibrate"]):
        assert run_kvsim(["validate", str(DECISIONS), *flags]) == 2
        assert f"{flags[0]}: {DECISIONS} is no measured run" in capsys.readouterr().err


# What is made of it.


def test_another_gpu_has_its_own_times_and_not_the_certainty_of_the_measured_one() -> None:
    measured, other = found(CODE8).run.setup, found(CODE8, "l40s").run.setup
    assert measured.cost().label.startswith("measured (h200)")
    assert other.cost().label.startswith("projected from h200")
    assert other.step_doubt >= measured.step_doubt + PROJECTED
    for one in found(CODE8, "l40s").metrics.values():
        if one.sensitivity:
            assert one.high - one.low >= 2 * abs(one.predicted * one.sensitivity) / 0.01 * PROJECTED


def test_an_engine_that_was_checked_on_another_gpu_is_no_more_certain() -> None:
    setup = found(CODE8).run.setup
    elsewhere = replace(setup, engine=setup.engine._replace(gpu="L40S-48GB"))
    assert elsewhere.step_doubt == pytest.approx(setup.step_doubt + PROJECTED)


def test_the_gpu_and_the_kind_of_its_times_are_shown_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "out.html"
    command = ["validate", str(CODE8), "--gpu", "NVIDIA L40S"]
    assert run_kvsim([*command, "--report", str(page)]) == 0
    text = capsys.readouterr().out
    line = (
        "L40S-48GB (as --gpu says); projected from h200, vllm 0.23 times, taken to be right within"
    )
    assert line in text
    assert line in page.read_text()
    assert run_kvsim([*command, "--json"]) == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert (run["gpu"], run["gpu_from"]) == ("L40S-48GB", "--gpu")
    assert run["cost_model"] == "projected from h200, vllm 0.23"
    assert run["step_doubt"] > PROJECTED
    assert json.loads(page.with_suffix(".json").read_text())["runs"][0]["gpu"] == "L40S-48GB"


def test_runs_on_several_gpus_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "workloads").mkdir()
    shutil.copy(WORKLOAD, tmp_path / "workloads" / WORKLOAD.name)
    other = run_that_says(tmp_path, gpu="l40s")
    assert run_kvsim(["validate", str(CODE8), str(other)]) == 0
    said = capsys.readouterr().out
    assert "l8b_default__code8: H200-SXM-141GB (assumed, as none is recorded; --gpu" in said
    assert "x__code8: L40S-48GB (as recorded); projected from h200" in said
