"""Products of activations and weights, ``[m, k] x [n, k]^T``: cuBLAS in bf16, row-scaled fp8."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from .arena import Arena
from .series import Scope, Series, thinned
from .timing import Work, rotations

M = (
    1, 8, 16, 32, 64, 96, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1152, 1280, 1408,
    1536, 1664, 1792, 1920, 2048, 2304, 2560, 2816, 3072, 3584, 4096, 5120, 6144, 8192, 12288, 16384,
)  # fmt: skip
"""Rows, dense enough to show the steps at which another wave of tiles begins."""
N = (
    256, 512, 1024, 1536, 2048, 3072, 4096, 5120, 6144, 7168, 8192, 10240, 14336, 20480, 28672, 57344,
)  # fmt: skip
K = (256, 512, 1024, 2048, 3584, 4096, 5120, 7168, 8192, 14336, 28672)
HEAD_N, HEAD_K, HEAD_M = (16384, 32768, 65536, 131072), (1024, 2048, 4096, 8192), M[:17]
"""Output heads: as wide as a vocabulary, and only rows that sample."""
FP8_N, FP8_K = (
    (512, 1024, 2048, 4096, 6144, 8192, 14336, 28672),
    (512, 1024, 2048, 4096, 8192, 14336),
)
FP8_M = (1, 16, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 16384)
LARGEST = 16384 * 8192 * 8192
"""Multiply-adds of the largest product that is timed; beyond it time is proportional."""
HOT = 24e-3
"""Seconds of load before a product of many rows is timed."""


def gemms(arena: Arena, scope: Scope, held_out: bool) -> Iterator[Series]:
    """All products."""
    if held_out:
        yield from random_shapes(arena, scope)
        return
    on_grid = [(n, k) for n in thinned(N, scope, 3) for k in thinned(K, scope, 3)]
    rows = thinned(M, scope, 3)
    for n, k in on_grid:
        if n * k <= 28672 * 8192:
            yield from bf16(arena, n, k, rows)
    if arena.device.type == "cuda":
        for n in thinned(HEAD_N, scope, 3):
            for k in thinned(HEAD_K, scope, 2):
                yield from bf16(arena, n, k, thinned(HEAD_M, scope, 3))
        for n in thinned(FP8_N, scope, 3):
            for k in thinned(FP8_K, scope, 3):
                yield from fp8(arena, n, k, thinned(FP8_M, scope, 3))


def random_shapes(arena: Arena, scope: Scope) -> Iterator[Series]:
    """Shapes off the grid: log-uniform, n and k multiples of 128."""
    draw = np.random.default_rng(1)
    for _ in range({"full": 160, "quick": 24, "tiny": 2}[scope]):
        n, k = (
            int(2 ** draw.uniform(8, 9 if scope == "tiny" else 14)) // 128 * 128 for _ in range(2)
        )
        m = int(2 ** draw.uniform(0, 13))
        yield from bf16(arena, n, k, (m,))


def bf16(arena: Arena, n: int, k: int, rows: tuple[int, ...]) -> Iterator[Series]:
    """One weight matrix over rows: few are bound by memory, many run hot."""
    fitting = tuple(m for m in rows if m * n * k <= LARGEST)
    sets = rotations(2 * n * k)

    def prepare(m: int) -> Work:
        weights = arena.slices(arena.numbers, (n, k), sets)
        x = arena.activations(m, k)
        out = torch.empty((m, n), dtype=arena.dtype, device=arena.device)
        turned = [weight.t() for weight in weights]
        return Work(lambda i: torch.mm(x, turned[i % len(turned)], out=out), len(turned))

    few = tuple(m for m in fitting if m < 512)
    many = tuple(m for m in fitting if m >= 512)
    for part, heat in ((few, 2e-3), (many, HOT)):
        if part:
            yield Series("gemm", ("bf16", n, k), part, prepare, heat)


def fp8(arena: Arena, n: int, k: int, rows: tuple[int, ...]) -> Iterator[Series]:
    """The same in fp8 with a scale per row of either side."""
    sets = rotations(n * k)

    def prepare(m: int) -> Work:
        weights = [w.t() for w in arena.slices(arena.eighths, (n, k), sets)]
        x = arena.slices(arena.eighths, (m, k), 1)[0]
        left = torch.ones((m, 1), device=arena.device)
        right = torch.ones((1, n), device=arena.device)

        def launch(i: int) -> object:
            return torch._scaled_mm(
                x, weights[i % len(weights)], left, right, out_dtype=torch.bfloat16,
                use_fast_accum=True,
            )  # fmt: skip

        return Work(launch, len(weights))

    fitting = tuple(m for m in rows if m * n * k <= LARGEST)
    yield Series("gemm", ("fp8", n, k), fitting, prepare, 8e-3)
