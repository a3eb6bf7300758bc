"""The command lines that start what a plan says, for vLLM and SGLang.

Flags as documented for vLLM 0.23 (``vllm serve --help``) and SGLang 0.5 (server arguments).
"""

from __future__ import annotations

import shlex
from typing import NamedTuple

from kvsim.scenario import Scenario
from kvsim.sizing import MemoryPlan

FLOAT8 = {name: name for name in ("fp8_e4m3", "fp8_e5m2")}
KV_DTYPES = {"auto": "auto", "bf16": "bfloat16", "bfloat16": "bfloat16", "fp8": "fp8", **FLOAT8}
SGLANG_KV_DTYPES = {"auto": "auto", "bf16": "bf16", "bfloat16": "bf16", "fp8": "fp8_e4m3", **FLOAT8}


class Commands(NamedTuple):
    """What to run on each replica, and what the lines cannot express."""

    vllm: str
    sglang: str
    notes: tuple[str, ...]


def commands(scenario: Scenario, memory: MemoryPlan, replicas: int) -> Commands:
    """Command lines of one replica of a scenario whose limits are settled."""
    return Commands(
        shlex.join(_vllm(scenario, memory)),
        shlex.join(_sglang(scenario, memory)),
        tuple(_notes(scenario, replicas)),
    )


def _vllm(scenario: Scenario, memory: MemoryPlan) -> list[str]:
    caching = "" if scenario.enable_prefix_caching else "no-"
    line = ["vllm", "serve", memory.layout.model.name]
    line += ["--tensor-parallel-size", str(scenario.tensor_parallel_size)]
    if scenario.pipeline_parallel_size > 1:
        line += ["--pipeline-parallel-size", str(scenario.pipeline_parallel_size)]
    line += ["--gpu-memory-utilization", f"{scenario.gpu_memory_utilization:g}"]
    line += ["--max-num-seqs", str(scenario.max_num_seqs)]
    line += ["--max-num-batched-tokens", str(scenario.max_num_batched_tokens)]
    line += ["--block-size", str(scenario.block_size)]
    line += ["--kv-cache-dtype", KV_DTYPES.get(scenario.kv_cache_dtype.lower(), "auto")]
    if scenario.max_model_len:
        line += ["--max-model-len", str(scenario.max_model_len)]
    if scenario.num_gpu_blocks_override:
        line += ["--num-gpu-blocks-override", str(scenario.num_gpu_blocks_override)]
    return [*line, f"--{caching}enable-prefix-caching"]


def _sglang(scenario: Scenario, memory: MemoryPlan) -> list[str]:
    """SGLang's static share is weights and pool, of the whole device."""
    static = (memory.weights + memory.kv_pool) / memory.total
    line = ["python", "-m", "sglang.launch_server", "--model-path", memory.layout.model.name]
    line += ["--tp-size", str(scenario.tensor_parallel_size)]
    if scenario.pipeline_parallel_size > 1:
        line += ["--pp-size", str(scenario.pipeline_parallel_size)]
    line += ["--mem-fraction-static", f"{static:.3f}"]
    line += ["--max-running-requests", str(scenario.max_num_seqs)]
    line += ["--chunked-prefill-size", str(scenario.max_num_batched_tokens)]
    line += ["--page-size", str(scenario.block_size)]
    line += ["--kv-cache-dtype", SGLANG_KV_DTYPES.get(scenario.kv_cache_dtype.lower(), "auto")]
    if scenario.max_model_len:
        line += ["--context-length", str(scenario.max_model_len)]
    return line if scenario.enable_prefix_caching else [*line, "--disable-radix-cache"]


def _notes(scenario: Scenario, replicas: int) -> list[str]:
    notes = []
    if replicas > 1:
        size = scenario.tensor_parallel_size * scenario.pipeline_parallel_size
        gpus = "1 GPU" if size == 1 else f"{size} GPUs of one machine"
        notes.append(
            f"start {replicas} of these, each on {gpus}, behind a balancer that routes "
            f"{scenario.router.name}"
        )
    if scenario.kv_cache_dtype.lower() not in KV_DTYPES:
        notes.append(f"KV cache in {scenario.kv_cache_dtype}: neither line can express it")
    if (scenario.allocator.name, scenario.scheduler.name) != ("paged", "chunked"):
        notes.append(
            f"{scenario.allocator.name} memory under the {scenario.scheduler.name} scheduler is no "
            "setting of vLLM: its line starts paged memory and chunked prefill"
        )
    if scenario.weight_dtype != "auto":
        notes.append(f"weights in {scenario.weight_dtype}: name a checkpoint of that type")
    return notes
