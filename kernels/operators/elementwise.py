"""What lies between the products of a layer, fused as engines fuse it, and both ends of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from ..layer import add_norm, embed, rotate, silu
from ..write import write_kv
from .arena import Arena
from .series import Scope, Series, thinned
from .timing import Work, rotations

TOKENS = (
    1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384,
)  # fmt: skip
WIDTHS = {
    "rms_norm": (1024, 1152, 2048, 2304, 3072, 4096, 4352, 5120, 7168, 8192, 8448, 16384),
    "rope": (1024, 1536, 2560, 3584, 5120, 7168, 10240),
    "silu_mul": (1024, 2048, 4096, 8192, 14336, 28672),
    "embedding": (1024, 2048, 4096, 8192),
    "kv_write": (128, 256, 384, 512, 640, 1024, 1152, 2048, 2176, 4096),
}
"""Elements a token; also those just above a power of two, to which the kernels of norms and writes pad."""
VOCABS = (32000, 65536, 102400, 128256, 131072, 151936, 163840, 201088, 248320, 262144)
ROWS = (1, 4, 16, 64, 128, 256, 512, 1024)
HEAD_DIM = 128


def elementwise(arena: Arena, scope: Scope, held_out: bool) -> Iterator[Series]:
    """All of them over tokens and widths."""
    makers: dict[str, Callable[[Arena, int, int], Work]] = {
        "rms_norm": norm_work,
        "rope": rope_work,
        "silu_mul": silu_work,
        "embedding": embedding_work,
    }
    for name, make in makers.items():
        for width, tokens in grid(WIDTHS[name], TOKENS, scope, held_out):
            yield Series(name, (width,), tokens, points(arena, make, width))
    for dtype in ("bf16", "fp8"):
        for width, tokens in grid(WIDTHS["kv_write"], TOKENS, scope, held_out):
            yield Series("kv_write", (dtype, width), tokens, writes(arena, dtype, width))
    for vocab, rows in grid(VOCABS, ROWS, scope, held_out):
        yield Series("sample", (vocab,), rows, points(arena, sample_work, vocab))


def grid(
    widths: tuple[int, ...], counts: tuple[int, ...], scope: Scope, held_out: bool
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Widths with their counts: the grid, or a few pairs between its lines."""
    if not held_out:
        yield from ((width, thinned(counts, scope)) for width in thinned(widths, scope))
        return
    draw = np.random.default_rng(5)
    for _ in range({"full": 24, "quick": 2, "tiny": 1}[scope]):
        width = int(2 ** draw.uniform(np.log2(widths[0]), np.log2(widths[-1]))) // 128 * 128
        most = 4 if scope == "tiny" else counts[-1]
        yield width, (int(2 ** draw.uniform(0, np.log2(most))),)


def points(
    arena: Arena, make: Callable[[Arena, int, int], Work], width: int
) -> Callable[[int], Work]:
    """Works of one width by their count."""
    return lambda count: make(arena, count, width)


def norm_work(arena: Arena, tokens: int, width: int) -> Work:
    """RMSNorm of a sum with the residual, which is kept (as ``fused_add_rms_norm``)."""
    x, residual, weight = (
        arena.activations(*s) for s in ((tokens, width), (tokens, width), (width,))
    )
    out = torch.empty_like(x)
    return Work(lambda i: add_norm(x, residual, weight, out))


def rope_work(arena: Arena, tokens: int, width: int) -> Work:
    """Rotary positions of queries and keys together, in place; ``width`` is all their heads."""
    heads = max(1, width // HEAD_DIM)
    x, turns = arena.activations(tokens, heads, HEAD_DIM), arena.activations(4096, HEAD_DIM)
    positions = torch.arange(tokens, device=arena.device) % 4096
    return Work(lambda i: rotate(x, turns, positions))


def silu_work(arena: Arena, tokens: int, width: int) -> Work:
    """SiLU of one half times the other half; ``width`` is that of the result."""
    x = arena.activations(tokens, 2 * width)
    out = x.new_empty(tokens, width)
    return Work(lambda i: silu(x, out))


def embedding_work(arena: Arena, tokens: int, width: int) -> Work:
    """Rows of an embedding of 32,768 words (or as many as there is room for)."""
    words = min(32768, arena.numbers.numel() // width)
    table = arena.slices(arena.numbers, (words, width), 1)[0]
    ids = torch.randint(words, (tokens,), device=arena.device, generator=arena.generator)
    out = table.new_empty(tokens, width)
    return Work(lambda i: embed(table, ids, out))


def sample_work(arena: Arena, rows: int, vocab: int) -> Work:
    """A token drawn from every row of logits: softmax in float32, and the exponential trick."""
    logits = arena.activations(rows, vocab)
    noise = torch.empty((rows, vocab), dtype=torch.float32, device=arena.device)

    def launch(i: int) -> Tensor:
        shares = logits.float().softmax(-1)
        return shares.div_(noise.exponential_()).argmax(-1)

    return Work(launch)


def writes(arena: Arena, dtype: str, width: int) -> Callable[[int], Work]:
    """Keys and values of new tokens into scattered slots; ``width`` is all kv heads of one of both."""
    heads = max(1, width // HEAD_DIM)

    def prepare(tokens: int) -> Work:
        kv = arena.memory(dtype, 16, heads, HEAD_DIM)
        keys, values = (arena.activations(tokens, heads, HEAD_DIM) for _ in range(2))
        slots = kv.num_blocks * kv.block_size
        sets = min(16, rotations(4 * tokens * width))
        order = torch.randperm(slots, device=arena.device, generator=arena.generator)
        chosen = [order[(torch.arange(tokens, device=arena.device) + i * tokens) % slots]
                  for i in range(sets)]  # fmt: skip
        return Work(lambda i: write_kv(keys, values, kv, chosen[i % sets]), sets)

    return prepare
