"""The routed experts of one layer: two grouped products with the activation between them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from .arena import Arena
from .series import Scope, Series, thinned
from .timing import Work

LAYERS = (
    (8, 2, 4096, 14336), (64, 6, 2048, 1408), (128, 8, 2048, 768), (256, 8, 7168, 256),
    (8, 2, 4096, 3584), (32, 4, 2880, 2880), (16, 1, 5120, 2048), (128, 8, 4096, 384),
)  # fmt: skip
"""Experts, experts a token, hidden size, width of an expert (on one GPU)."""
TOKENS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


def moes(arena: Arena, scope: Scope, held_out: bool) -> Iterator[Series]:
    """Layers of well-known mixtures over the tokens of a batch."""
    if arena.device.type != "cuda":
        return
    draw = np.random.default_rng(6)
    for layer in LAYERS[: {"full": 8, "quick": 2, "tiny": 1}[scope]]:
        tokens = thinned(TOKENS, scope, 3)
        if held_out:
            tokens = (int(2 ** draw.uniform(0, 13)),)
        yield expert_layers(arena, *layer, tokens)


def expert_layers(
    arena: Arena, experts: int, top_k: int, hidden: int, width: int, tokens: tuple[int, ...]
) -> Series:
    """Every token goes to experts drawn without bias."""

    def prepare(count: int) -> Work:
        # Both stacks may overlap in memory: only what is read counts.
        up = arena.slices(arena.numbers, (experts, 2 * width, hidden), 1)[0].transpose(1, 2)
        down = arena.slices(arena.numbers, (experts, hidden, width), 1)[0].transpose(1, 2)
        x = arena.activations(count * top_k, hidden)
        ends = [routed(arena, experts, top_k, count) for _ in range(4)]

        def launch(i: int) -> Tensor:
            inner = torch._grouped_mm(x, up, offs=ends[i % 4])
            active = torch.nn.functional.silu(inner[:, :width]) * inner[:, width:]
            return torch._grouped_mm(active, down, offs=ends[i % 4])

        return Work(launch, 4)

    return Series("moe", ("bf16", experts, top_k, hidden, width), tokens, prepare, 8e-3)


def routed(arena: Arena, experts: int, top_k: int, tokens: int) -> Tensor:
    """Where the rows of each expert end."""
    scores = torch.rand((tokens, experts), device=arena.device, generator=arena.generator)
    chosen = scores.topk(top_k, dim=1).indices.flatten()
    return torch.bincount(chosen, minlength=experts).cumsum(0).int()
