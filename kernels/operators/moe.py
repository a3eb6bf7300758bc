"""The routed experts of one layer: two grouped products with the activation between them.

By two ways: a Triton kernel that works like the fused experts of serving engines (rows sorted by
expert, tiles of rows, each with its expert's weights), and PyTorch's grouped product.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from ..layer import silu
from .arena import Arena
from .series import Scope, Series, thinned
from .timing import Work

LAYERS = (
    (8, 2, 4096, 14336), (64, 6, 2048, 1408), (128, 8, 2048, 768), (256, 8, 7168, 256),
    (8, 2, 4096, 3584), (32, 4, 2880, 2880), (16, 1, 5120, 2048), (128, 8, 4096, 384),
)  # fmt: skip
"""Experts, experts a token, hidden size, width of an expert (on one GPU)."""
OTHERS = ((60, 4, 2048, 1408), (64, 8, 2048, 1024), (160, 6, 5120, 192), (16, 2, 4096, 1600))
"""Layers that are not in the tables: how well others stand in for them."""
TOKENS = (
    1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1280, 1536, 2048,
    3072, 4096, 6144, 8192,
)  # fmt: skip
ROUTINGS = 4
"""Draws of experts that a graph goes through."""


class Routing(NamedTuple):
    """Which rows belong to which expert; rows are sorted by expert."""

    ends: Tensor
    """Where the rows of each expert end, int32 ``[experts]``."""
    experts: Tensor
    """Of each tile of rows."""
    starts: Tensor
    """First row of each tile."""


def moes(arena: Arena, scope: Scope, held_out: bool) -> Iterator[Series]:
    """Layers of well-known mixtures over the tokens of a batch."""
    if arena.device.type != "cuda":
        return
    draw = np.random.default_rng(6)
    for layer in LAYERS[: {"full": 8, "quick": 2, "tiny": 1}[scope]]:
        tokens = thinned(TOKENS, scope, 6)
        if held_out:
            tokens = tuple(sorted({int(2 ** draw.uniform(0, 13)) for _ in range(3)}))
        yield from expert_layers(arena, *layer, tokens)
    for layer in OTHERS if held_out and scope == "full" else ():
        for series in expert_layers(arena, *layer, (2, 12, 100, 700, 5000)):
            yield series._replace(operator="moe_other")


def expert_layers(
    arena: Arena, experts: int, top_k: int, hidden: int, width: int, tokens: tuple[int, ...]
) -> Iterator[Series]:
    """Every token goes to experts drawn without bias."""

    def stacks() -> tuple[Tensor, Tensor]:
        # Both may overlap in memory: only what is read counts.
        up = arena.slices(arena.numbers, (experts, 2 * width, hidden), 1)[0]
        return up, arena.slices(arena.numbers, (experts, hidden, width), 1)[0]

    def tiled(count: int) -> Work:
        up, down = stacks()
        rows = count * top_k
        x = arena.activations(rows, hidden)
        inner, out = x.new_empty(rows, 2 * width), x.new_empty(rows, hidden)
        active = x.new_empty(rows, width)
        height = tile_rows(rows / experts)
        routings = [routed(arena, experts, top_k, count, height) for _ in range(ROUTINGS)]

        def launch(i: int) -> None:
            product(x, up, routings[i % ROUTINGS], inner, height)
            silu(inner, active)
            product(active, down, routings[i % ROUTINGS], out, height)

        return Work(launch, ROUTINGS)

    def grouped(count: int) -> Work:
        up, down = (stack.transpose(1, 2) for stack in stacks())
        x = arena.activations(count * top_k, hidden)
        active = x.new_empty(count * top_k, width)
        ends = [routed(arena, experts, top_k, count, 64).ends for _ in range(ROUTINGS)]

        def launch(i: int) -> Tensor:
            silu(torch._grouped_mm(x, up, offs=ends[i % ROUTINGS]), active)
            return torch._grouped_mm(active, down, offs=ends[i % ROUTINGS])

        return Work(launch, ROUTINGS)

    layer = ("bf16", experts, top_k, hidden, width)
    yield Series("moe", ("tiled", *layer), tokens, tiled, 8e-3)
    yield Series("moe", ("grouped", *layer), tokens, grouped, 8e-3)


def tile_rows(rows: float) -> int:
    """Rows of a tile for so many rows an expert."""
    return 16 if rows <= 16 else 64 if rows <= 96 else 128


def routed(arena: Arena, experts: int, top_k: int, tokens: int, height: int) -> Routing:
    """Choices of the router, drawn evenly."""
    scores = torch.rand((tokens, experts), device=arena.device, generator=arena.generator)
    chosen = scores.topk(top_k, dim=1).indices.flatten()
    counts = torch.bincount(chosen, minlength=experts)
    ends = counts.cumsum(0)
    tiles = -(-counts // height)
    ids = torch.arange(experts, device=arena.device).repeat_interleave(tiles)
    before = (tiles.cumsum(0) - tiles)[ids]
    index = torch.arange(len(ids), device=arena.device) - before
    starts = (ends - counts)[ids] + index * height
    return Routing(ends.int(), ids.int(), starts.int())


def product(x: Tensor, weights: Tensor, routing: Routing, out: Tensor, height: int) -> None:
    """``out[r] = weights[expert of r] @ x[r]``; ``weights`` is ``[experts, n, k]``."""
    _, n, k = weights.shape
    width = 256 if height == 128 else 128
    _expert_kernel[(len(routing.experts), triton.cdiv(n, width))](
        x, weights, out, routing.experts, routing.starts, routing.ends, n, k,
        ROWS=height, COLUMNS=width, DEPTH=64, num_warps=8 if height == 128 else 4,
        num_stages=3 if height == 128 else 4,
    )  # fmt: skip


@triton.jit
def _expert_kernel(
    x, weights, out, experts, starts, ends, n, k,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    expert = tl.load(experts + tile)
    rows = tl.load(starts + tile) + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    present, inside = rows < tl.load(ends + expert), columns < n
    left = x + rows.to(tl.int64)[:, None] * k + depth[None, :]
    right = weights + expert.to(tl.int64) * n * k + columns[None, :] * k + depth[:, None]
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for _ in range(0, k, DEPTH):
        a = tl.load(left, mask=present[:, None], other=0.0)
        b = tl.load(right, mask=inside[None, :], other=0.0)
        total = tl.dot(a, b, total)
        left += DEPTH
        right += DEPTH
    at = out + rows.to(tl.int64)[:, None] * n + columns[None, :]
    tl.store(at, total, mask=present[:, None] & inside[None, :])
