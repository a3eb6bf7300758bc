"""A model small enough for a CPU, and a pool too small for what is asked of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvsim.runs import RunResult
from kvsim.scenario import Scenario

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
BUSY: list[dict[str, Any]] = [
    {
        "arrival": 0.0,
        "prompt_tokens": 21,
        "output_tokens": 11 + 4 * (row % 3),
        "hash_ids": [1, 2, 100 + row % 4],
        "hash_block": 8,
        **({}, {"n": 3}, {"beam_width": 2})[row % 3],
    }
    for row in range(9)
]
"""Prompts that share two blocks of three, and single answers, samples and beams that outgrow the pool.

All arrive at once, so that wall times decide nothing.
"""
SEQUENCES = 3 * (1 + 3 + 2)
TOKENS = 3 * (1 * 11 + 3 * 15 + 2 * 19)
"""Drawn once by each; groups that lose their memory before all have drawn draw again."""
POOLS = {"paged": 15, "radix": 11, "contiguous": 37, "buddy": 44}
"""Blocks in which :data:`BUSY` is preempted."""


def written(lines: Iterable[dict[str, Any]], path: Path) -> str:
    """A trace file."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


def scenario(
    model: str, allocator: str = "paged", /, options: dict[str, Any] | None = None, **settings: Any
) -> Scenario:
    """A pool too small for :data:`BUSY`, on the CPU."""
    given: dict[str, Any] = {
        "model": model,
        "executor": "cpu",
        "allocator": {"name": allocator, **(options or {})},
        "reservation": "oracle",
        "block_size": 8,
        "num_gpu_blocks_override": POOLS[allocator],
        "max_num_seqs": 8,
        "max_num_batched_tokens": 40,
        "max_model_len": 64,
        **settings,
    }
    return Scenario(**given)


def verified(result: RunResult) -> Any:
    """What the verifier says of a run."""
    host: Any = result.manifest["host"]
    return host["executor"]["verified"]
