"""Decodes of latent attention (MLA) in the absorbed form, paged."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..mla import mla_decode
from .arena import Arena
from .lengths import SPREADS, uneven
from .series import Scope, Series, thinned
from .timing import Work, rotations

LATENT, ROPE = 512, 64
LATENT_CONTEXTS = (
    16, 128, 320, 512, 704, 896, 1024, 1472, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576,
    32768, 49152, 65536, 131072,
)  # fmt: skip
"""A batch reads tiles of 64 tokens, whose share a processor has changes in steps."""
MLA_HEADS, MLA_BATCH = (16, 32, 64, 128), (
    1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256,
)  # fmt: skip
FEW_CONTEXTS = (16, 512, 2048, 8192, 32768, 131072)
"""Of a quick run."""
MOST = 2**31
"""Elements of latents that a timed decode reads at most; beyond, time is proportional."""


def latent_grid(arena: Arena, scope: Scope) -> Iterator[Series]:
    """Heads, batches and contexts; in a full run also unequal contexts."""
    for heads in thinned(MLA_HEADS, scope):
        for batch in thinned(MLA_BATCH, scope, 3):
            yield latent_series(
                arena, heads, batch, LATENT_CONTEXTS if scope == "full" else FEW_CONTEXTS
            )
    for cv in SPREADS if scope == "full" else ():
        for heads, batch in ((16, 16), (16, 64), (16, 128), (128, 16), (128, 64), (128, 128)):
            yield mixed_latents(arena, heads, cv, batch, (1024, 4096))


def random_latents(arena: Arena, scope: Scope) -> Iterator[Series]:
    """MLA decodes off the grid."""
    draw = np.random.default_rng(14)
    for _ in range({"full": 48, "quick": 6, "tiny": 0}[scope]):
        heads, batch = int(draw.choice(MLA_HEADS)), int(2 ** draw.uniform(0, 8))
        yield latent_series(arena, heads, batch, (int(2 ** draw.uniform(8, 16.5)),))


def latent_series(arena: Arena, heads: int, batch: int, contexts: tuple[int, ...]) -> Series:
    """MLA decode in the absorbed form."""
    width = LATENT + ROPE
    fitting = tuple(context for context in contexts if batch * width * context <= MOST)

    def prepare(context: int) -> Work:
        return latent_work(arena, heads, [context] * batch)

    return Series("mla_decode", ("bf16", heads, batch), fitting, prepare)


def mixed_latents(
    arena: Arena, heads: int, cv: int, batch: int, contexts: tuple[int, ...]
) -> Series:
    """The same over unequal sequences (see :func:`.attention.mixed_series`)."""
    shares = uneven(batch, cv / 100)

    def prepare(context: int) -> Work:
        return latent_work(arena, heads, [max(1, round(share * context)) for share in shares])

    return Series("mla_mixed", ("bf16", heads, cv, batch), contexts, prepare)


def latent_work(arena: Arena, heads: int, lengths: list[int]) -> Work:
    """MLA decode of sequences of any lengths."""
    width, batch = LATENT + ROPE, len(lengths)
    cache = arena.memory("bf16", 16, 1, 512).k.view(-1)
    blocks = cache.numel() // (16 * width) // 16 * 16
    rows = cache[: blocks * 16 * width].view(blocks, 16, width)
    sets = rotations(2 * sum(lengths) * width)
    tables = arena.tables(blocks, batch, -(-max(lengths) // 16), sets)
    q, held = arena.activations(batch, heads, width), arena.vector(lengths)
    scale = (128 + ROPE) ** -0.5
    return Work(
        lambda i: mla_decode(q, rows, tables[i % sets], held, rank=LATENT, scale=scale), sets
    )
