"""Products of activations and weights, ``[m, k] x [n, k]^T``: cuBLAS in bf16, row-scaled fp8.

They are timed at the card's top clock, which seconds of products bound by arithmetic lower until they
take a fifth longer: how much is measured apart (``gemm_sustained``). So the card rests before each,
and they come in order of their rows, then of their weights, each behind others that load the card as
much: behind products of 16,384 rows, those of 512 took up to a sixth longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from .arena import Arena
from .series import Scope, Series, thinned
from .timing import Work, rotations

FEW = (1, 8, 16, 32, 48, 64, 80, 96, 112, *range(128, 512, 32))
MANY = (
    512, 640, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792, 2048, 2304, 2560, 3072, 3584, 4096,
    5120, 6144, 8192, 16384,
)  # fmt: skip
"""Rows, dense enough to show the steps at which another wave of tiles begins."""
N = (
    256, 512, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192, 10240, 14336, 20480,
    28672, 57344,
)  # fmt: skip
K = (256, 512, 1024, 1536, 2048, 3072, 4096, 5120, 7168, 8192, 14336, 28672)
HEAD_N, HEAD_K = (32768, 65536, 131072, 262144), (1024, 2048, 4096, 5120, 8192)
"""Output heads: as wide as a vocabulary, and only rows that sample."""
HEAD_MANY = (512, 768, 1024)
FP8_N = (512, 1024, 2048, 3072, 4096, 6144, 8192, 10240, 14336, 20480, 28672)
FP8_K = (512, 1024, 2048, 3072, 4096, 6144, 8192, 14336)
FP8_FEW, FP8_MANY = (
    (1, 8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448),
    (
        512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096, 6144, 8192, 16384,
    ),
)  # fmt: skip
MODEL_FEW = (1, *range(8, 256, 8), *range(256, 512, 16))
"""A kernel is chosen anew every few rows, and two neighbours may differ by a third."""
MODEL_MANY = (
    *range(512, 1024, 32), *range(1024, 2048, 64), *range(2048, 4096, 128), *range(4096, 8192, 512),
    8192, 10240, 12288, 16384,
)  # fmt: skip
MODEL_WEIGHTS = (
    (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (24576, 4096), (4096, 12288),
    (10240, 8192), (8192, 8192), (8192, 28672), (5120, 8192), (8192, 4096), (28672, 8192),
    (8192, 14336), (2560, 8192), (8192, 2048), (14336, 8192), (8192, 7168), (1280, 8192),
    (8192, 1024), (7168, 8192), (8192, 3584), (7168, 5120), (5120, 5120), (55296, 5120),
    (5120, 27648), (4608, 3584), (3584, 3584), (37888, 3584), (3584, 18944), (27648, 5120),
    (5120, 13824), (8192, 5376), (5376, 4096), (43008, 5376), (5376, 21504), (2112, 7168),
    (3072, 1536), (4096, 512), (7168, 2048), (512, 7168), (7168, 256), (3648, 2048), (2048, 2048),
    (5120, 2880), (2880, 4096),
)  # fmt: skip
"""n, k of well-known models: Llama 3 8B and 70B (on 1, 2, 4, 8 GPUs), Qwen 2.5 7B, 14B, 32B, Qwen 3
8B, Gemma 3 27B, DeepSeek V3 (on 8) and V2 Lite, gpt-oss. Timed over many more rows than the grid."""
LARGEST = 16384 * 8192 * 8192
"""Multiply-adds of the largest product that is timed; beyond it time is proportional."""
LARGEST_WEIGHTS = 2**30


class Pace(NamedTuple):
    """Seconds of idleness, then of load, before a point is timed."""

    rest: float
    heat: float


PACES = {1: Pace(0.0, 1e-3), 128: Pace(4e-3, 1e-3), 512: Pace(5e-3, 1e-3)}
"""By the least rows that have it. Fewer rows wait for memory, which leaves the clock alone; with 8 ms
of rest, times of 512 to 8,192 rows were at most 1.7 % above those with 40 ms (without, up to 19 %)."""


class Weight(NamedTuple):
    """A matrix ``[n, k]`` of an operator's table, and the rows that it is timed with."""

    operator: str
    dtype: str
    n: int
    k: int
    rows: tuple[int, ...]


def few_rows(arena: Arena, scope: Scope, held_out: bool) -> Iterator[Series]:
    """Products of fewer than 512 rows: batches of decodes."""
    yield from products(arena, scope, held_out, few=True)


def many_rows(arena: Arena, scope: Scope, held_out: bool) -> Iterator[Series]:
    """Products of 512 rows and more: prompts."""
    yield from products(arena, scope, held_out, few=False)


def products(arena: Arena, scope: Scope, held_out: bool, *, few: bool) -> Iterator[Series]:
    """The grid and the weights of models, or shapes that are on neither, by their rows."""
    if held_out:
        weights = [*random_rows(scope, few=few), *random_shapes(arena, scope, few=few)]
    else:
        weights = [*grid(arena, scope, few=few), *models(scope, few=few)]
    weights.sort(key=lambda weight: weight.n * weight.k)
    for m in sorted({m for weight in weights for m in weight.rows}):
        for weight in weights:
            if m in weight.rows and m * weight.n * weight.k <= LARGEST:
                yield product(arena, weight, m)


def models(scope: Scope, *, few: bool) -> Iterator[Weight]:
    """The weights of models."""
    for n, k in MODEL_WEIGHTS if scope == "full" else ():
        yield Weight("gemm_model", "bf16", n, k, MODEL_FEW if few else MODEL_MANY)


def grid(arena: Arena, scope: Scope, *, few: bool) -> Iterator[Weight]:
    """All weights, with few or many rows."""
    rows = thinned(FEW if few else MANY, scope, 3)
    for n in thinned(N, scope, 3):
        for k in thinned(K, scope, 3):
            named = scope == "full" and (n, k) in MODEL_WEIGHTS
            if n * k <= 28672 * 8192 and not named:
                yield Weight("gemm", "bf16", n, k, rows)
    if arena.device.type != "cuda":
        return
    for n in thinned(HEAD_N, scope, 3):
        for k in thinned(HEAD_K, scope, 2):
            if n * k <= LARGEST_WEIGHTS:
                yield Weight("gemm", "bf16", n, k, rows if few else HEAD_MANY)
    for n in thinned(FP8_N, scope, 3):
        for k in thinned(FP8_K, scope, 3):
            yield Weight("gemm", "fp8", n, k, thinned(FP8_FEW if few else FP8_MANY, scope, 2))


def random_shapes(arena: Arena, scope: Scope, *, few: bool) -> Iterator[Weight]:
    """Shapes off the grid: weights from 1,024 on, their sides multiples of 128, log-uniform."""
    kinds = [("bf16", 80, 1 if few else 8, 14.5), ("fp8", 40, 21 if few else 28, 13.8)]
    for dtype, count, seed, most in kinds if arena.device.type == "cuda" else kinds[:1]:
        draw = np.random.default_rng(seed)
        low, high = (8, 9) if scope == "tiny" else (10, most)
        for _ in range({"full": count, "quick": 12, "tiny": 1}[scope]):
            n, k = (int(2 ** draw.uniform(low, high)) // 128 * 128 for _ in range(2))
            m = int(2 ** (draw.uniform(3, 8.9) if few else draw.uniform(9, 13)))
            yield Weight("gemm", dtype, n, k, (m,))


def random_rows(scope: Scope, *, few: bool) -> Iterator[Weight]:
    """Weights of models with numbers of rows that they were not timed with."""
    draw = np.random.default_rng(9 if few else 10)
    known = {*MODEL_FEW, *MODEL_MANY}
    for _ in range(100 if scope == "full" else 0):
        n, k = MODEL_WEIGHTS[draw.integers(len(MODEL_WEIGHTS))]
        m = int(2 ** (draw.uniform(3, 8.9) if few else draw.uniform(9, 13)))
        if m not in known:
            yield Weight("gemm_model", "bf16", n, k, (m,))


def product(arena: Arena, weight: Weight, m: int) -> Series:
    """A weight matrix and ``m`` rows."""
    make = bf16 if weight.dtype == "bf16" else fp8
    pace = PACES[max(rows for rows in PACES if rows <= m)]
    return Series(
        weight.operator,
        (weight.dtype, weight.n, weight.k),
        (m,),
        partial(make, arena, weight.n, weight.k),
        pace.heat,
        pace.rest,
    )


def bf16(arena: Arena, n: int, k: int, m: int) -> Work:
    """Rows times one of several weights, in turn."""
    sets = rotations(2 * n * k)
    weights = [weight.t() for weight in arena.slices(arena.numbers, (n, k), sets)]
    x = arena.numbers[-m * k :].view(m, k)
    out = torch.empty((m, n), dtype=arena.dtype, device=arena.device)
    return Work(lambda i: torch.mm(x, weights[i % len(weights)], out=out), len(weights))


def fp8(arena: Arena, n: int, k: int, m: int) -> Work:
    """The same in fp8 with a scale per row of either side."""
    weights = [weight.t() for weight in arena.slices(arena.eighths, (n, k), rotations(n * k))]
    x = arena.eighths[-m * k :].view(m, k)
    left = torch.ones((m, 1), device=arena.device)
    right = torch.ones((1, n), device=arena.device)

    def launch(i: int) -> object:
        return torch._scaled_mm(
            x, weights[i % len(weights)], left, right, out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )  # fmt: skip

    return Work(launch, len(weights))
