"""A replay on a device: outputs are those of contiguous memory, whatever happened to the blocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="executing a model needs the gpu extra")
pytest.importorskip("triton", reason="executing a model needs the gpu extra")

from kvsim.catalog.models import load_model  # noqa: E402
from kvsim.cli.app import run  # noqa: E402
from kvsim.compose import simulate  # noqa: E402
from kvsim.core import Request, Sequence  # noqa: E402
from kvsim.errors import CapacityError, ConfigError, VerificationError  # noqa: E402
from kvsim.execution import assembly  # noqa: E402
from kvsim.execution.assembly import DEVICES, Execution, check_weights  # noqa: E402
from kvsim.execution.fused import Kernels  # noqa: E402
from kvsim.execution.shape import shape_of  # noqa: E402
from kvsim.layout import KVLayout  # noqa: E402
from kvsim.memory.mapped import MAPPED  # noqa: E402
from kvsim.memory.mapped_paged import MappedPaged  # noqa: E402
from kvsim.memory.mapped_radix import MappedRadix  # noqa: E402
from kvsim.runs import RunResult  # noqa: E402
from kvsim.scenario import Scenario  # noqa: E402

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "vocab_size": 128,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
}
BUSY = [
    {
        "arrival": 0.0,
        "prompt_tokens": 24,
        "output_tokens": 12 + 3 * (row % 4),
        "hash_ids": [1, 2, 100 + row % 5],
        "hash_block": 8,
    }
    for row in range(12)
]
"""Prompts that share two blocks of three, and answers that outgrow a pool of 11 blocks; all arrive at once, so that wall times decide nothing."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small products are slower on several threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return str(tmp_path)


@pytest.fixture
def busy(tmp_path: Path) -> str:
    path = tmp_path / "busy.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in BUSY), encoding="utf-8")
    return str(path)


def scenario(path: str, **settings: Any) -> Scenario:
    """A pool too small for the workload, on the CPU."""
    given = {
        "model": path,
        "executor": "cpu",
        "block_size": 8,
        "num_gpu_blocks_override": 12,
        "max_num_seqs": 6,
        "max_num_batched_tokens": 40,
        "max_model_len": 64,
        **settings,
    }
    return Scenario(**given)


def verified(result: RunResult) -> Any:
    """What the verifier says of a run."""
    host: Any = result.manifest["host"]
    return host["executor"]["verified"]


@pytest.mark.parametrize(
    ("allocator", "dtype"),
    [
        *((name, dtype) for name in sorted(MAPPED) for dtype in ("auto", "fp8")),
        ("paged", "int8"),
        ("radix", "int8"),
    ],
)
def test_outputs_are_those_of_contiguous_memory(
    model: str, busy: str, allocator: str, dtype: str
) -> None:
    asked = scenario(model, allocator=allocator, kv_cache_dtype=dtype, reservation="oracle")
    result = simulate(asked, busy, verify=True, check=True)
    found = verified(result)
    assert found["sequences"] == len(BUSY)
    assert found["tokens"] == sum(line["output_tokens"] for line in BUSY)  # type: ignore[misc]
    assert found["largest_error"] <= (1e-4 if dtype == "auto" else found["tolerance"])


@pytest.mark.parametrize("allocator", ["paged", "radix"])
def test_the_workload_shares_evicts_preempts_and_recomputes(
    model: str, busy: str, allocator: str
) -> None:
    summary = simulate(scenario(model, allocator=allocator), busy, verify=True).summary
    for count in ("prefix_cache_hits", "num_evictions", "num_preemptions", "recomputed_tokens"):
        assert summary[count] > 0  # type: ignore[operator]


class FreesTooEarly(MappedPaged):
    """Lets the last full block of a running sequence's own be given out once more."""

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        grown = super().grow(sequence, tokens)
        own = self.table(sequence).blocks[sequence.kv.path.end :]
        extent = next(iter(self._queue), None)
        if grown and len(own) > 1 and extent is not None:
            self._tree.ids[extent].append(own[0])
            extent.end += 1
        return grown


def test_a_block_that_is_freed_early_is_caught(
    model: str, busy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MAPPED, "paged", FreesTooEarly)
    with pytest.raises(VerificationError, match="over contiguous memory"):
        simulate(scenario(model), busy, verify=True)


def test_a_run_that_fails_leaves_no_folder(
    model: str, busy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MAPPED, "paged", FreesTooEarly)
    with pytest.raises(VerificationError):
        simulate(scenario(model), busy, verify=True, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def command(model: str, trace: str, *more: str) -> list[str]:
    """The command line of :func:`scenario`."""
    pool = ["--num-gpu-blocks-override", "12", "--block-size", "8", "--max-model-len", "64"]
    limits = ["--max-num-seqs", "6", "--max-num-batched-tokens", "40"]
    return ["replay", trace, "--model", model, "--executor", "cpu", *pool, *limits, *more]


def test_the_command_line_says_how_far_outputs_are_off(
    model: str, busy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(model, busy, "--verify", "--limit", "3")) == 0
    shown = capsys.readouterr()
    assert "executed on cpu times" in shown.out
    assert "45 outputs of 3 sequences agree with contiguous memory" in shown.err


def test_a_wrong_output_has_an_exit_code_of_its_own(
    model: str, busy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(MAPPED, "paged", FreesTooEarly)
    assert run(command(model, busy, "--verify")) == 6
    assert "differs by" in capsys.readouterr().err


@pytest.mark.parametrize("asked", [["replay", "--sensitivity"], ["plan"], ["recommend"]])
def test_what_simulates_takes_no_executor(
    busy: str, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    name, *more = asked
    assert run([name, busy, "--executor", "cpu", *more]) == 2
    assert "takes no --executor" in capsys.readouterr().err


def served(engine: Any, pool: Any, sequences: list[Sequence], steps: int) -> None:
    """Decode some sequences together."""
    for _ in range(steps):
        pool.advance(1)
        engine.execute([], sequences)


@pytest.mark.parametrize("kind", [MappedPaged, MappedRadix])
@pytest.mark.parametrize("copies", [True, False], ids=["copied", "forgotten"])
def test_forks_write_to_copies_of_their_own(model: str, kind: Any, copies: bool) -> None:
    pool = kind(20, block_size=8) if kind is MappedPaged else kind(160, page_size=8)
    layout = KVLayout(load_model(model))
    execution = Execution("cpu", layout, seats=4, seed=1, verify=True)
    engine: Any = execution.engine_on(pool, 64)
    parent, child = (Sequence(Request(row, 0.0, 13, 20), 0) for row in range(2))
    child.request = parent.request
    assert pool.admit(parent, pool.match(parent), 13)
    engine.execute([(parent, 13)], [])
    parent.num_computed = child.num_computed = 13
    parent.num_tokens = child.num_tokens = 14
    assert pool.fork(parent, child, 13)
    if not copies:
        pool.copies.clear()
    for sequence in (parent, child):
        pool.join(sequence)
    served(engine, pool, [parent, child], 6)
    if copies:
        engine.finish(parent)
        engine.finish(child)
        assert engine.witness.tokens == 2 * (1 + 6)
    else:
        with pytest.raises(VerificationError):
            engine.finish(child)


@pytest.mark.parametrize("allocator", sorted(MAPPED))
@pytest.mark.parametrize("sharing", [{"n": 3}, {"beam_width": 3}], ids=["samples", "beams"])
def test_samples_and_beams_fork_drop_and_come_back_right(
    model: str, write: Callable[[str, str], Path], allocator: str, sharing: dict[str, int]
) -> None:
    lines = [{**line, **sharing, "output_tokens": 14} for line in BUSY[:5]]
    trace = write("groups.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    blocks = {"paged": 12, "radix": 10, "contiguous": 32, "buddy": 32}[allocator]
    asked = scenario(
        model,
        allocator=allocator,
        reservation="oracle",
        num_gpu_blocks_override=blocks,
        max_num_seqs=9,
    )
    result = simulate(asked, trace, verify=True, check=True)
    assert verified(result)["sequences"] == 3 * len(lines)
    assert result.summary["num_preemptions"] or blocks == 32


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


def device_tolerance(device: assembly.Device) -> float:
    """What the two passes may differ by."""
    return 1e-4 if device.dtype == torch.float32 else 5e-2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "deepseek-v2-lite"}, "2 kinds of layers"),
        ({"model": "qwen3-30b-a3b"}, "without a dense gated MLP"),
        ({"tensor_parallel_size": 2}, "one device, and the scenario 2 GPUs"),
        ({"engine": "vllm"}, "an engine of its own"),
        ({"scheduler": "static"}, "accepted: chunked, continuous"),
        ({"executor": "abacus"}, "unknown executor 'abacus'"),
        ({"kv_cache_dtype": "int4"}, "int4 cannot be executed"),
        ({"kv_cache_dtype": "int8", "allocator": "buddy"}, "a scale for each token"),
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
