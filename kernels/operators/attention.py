"""Attention over paged KV: decode, prefill of chunks, MLA decode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from ..decode import decode
from ..prefill import prefill
from .arena import Arena
from .latents import latent_grid, latent_series, random_latents
from .lengths import SPREADS, uneven
from .series import Scope, Series, thinned
from .timing import Work, rotations

CONTEXTS = (16, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
FINE = (
    16, 128, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576,
    32768, 49152, 65536, 131072,
)  # fmt: skip
"""The same for few units, whose time turns on how their tiles share out among the processors."""
FEW_UNITS = 8
EIGHT_BIT_CONTEXTS = (
    16, 128, 384, 640, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 65536,
    131072,
)  # fmt: skip
"""Of 8-bit KV, whose tiles are twice as long; also between those that share out evenly."""
EIGHT_BIT_UNITS = (
    1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256, 384, 512, 1024, 2048,
)  # fmt: skip
UNITS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
"""Sequences times kv heads."""
DECODES = (
    ("bf16", 16, 128, 4), ("bf16", 16, 128, 8), ("fp8", 16, 128, 4), ("int8", 16, 128, 4),
    ("bf16", 16, 128, 1), ("bf16", 16, 128, 16), ("bf16", 16, 64, 8), ("bf16", 16, 256, 4),
    ("fp8", 16, 128, 8), ("bf16", 256, 128, 4), ("int8", 16, 128, 8),
)  # fmt: skip
"""KV dtype, block size, head dim, query heads a kv head; int8 has a scale for each token and head.
A quick run measures the first five."""
UNEVEN = (64, 128, 256, 512, 1024, 2048)
"""Sequences times kv heads of batches of unequal contexts."""
MOST_DECODE = 2**32
"""Elements of KV (keys and values) that a timed decode reads at most; beyond, time is proportional."""
NEW = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PAST = (0, 1000, 4000, 16300, 32700, 65500, 131000)
"""Like real prompts no multiples of a tile: the library is a tenth faster on those."""
DENSE_NEW = (
    16, 32, 64, 96, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048,
    2560, 3072, 4096, 5120, 6144, 8192, 16384,
)  # fmt: skip
DENSE_PAST = (0, 1000, 8100, 32700)
"""For the head dim that most models have: waves of tiles make steps along the new tokens."""
DENSE_HEADS = (8, 16, 32, 64)
PREFILLS = ((128, 32), (128, 8), (128, 64), (64, 32), (256, 16))
"""Head dim and query heads; four query heads share a kv head."""
MOST_PAIRS = 32 * 2048 * 132_000
"""Query-key pairs times heads of a timed prefill at most."""
Chunk = Callable[[Arena, int, int, int, int], Work]
"""Work of a chunk: head dim, heads, new tokens, past."""


def sizes(units: int) -> tuple[int, int]:
    """Batch and kv heads that make up ``units``: eight heads where they divide it."""
    return (units // 8, 8) if units % 8 == 0 else (units, 1)


def decodes(arena: Arena, scope: Scope, held_out: bool) -> Iterator[Series]:
    """Attention of decodes: paged, over unequal lengths, and MLA's."""
    if held_out:
        yield from random_decodes(arena, scope)
        yield from random_mixed(arena, scope)
        yield from random_latents(arena, scope)
    elif scope == "tiny":
        yield decode_series(arena, *DECODES[0], 2, 1, (16, 33))
        yield latent_series(arena, 16, 1, (16,))
    else:
        yield from decode_grid(arena, scope)


def decode_grid(arena: Arena, scope: Scope) -> Iterator[Series]:
    """Every kind of decode over its batches and contexts."""
    for kind in DECODES if scope == "full" else DECODES[:5]:
        few, eight = kind[1] != 16 or kind[2] != 128, kind[0] in ("fp8", "int8")
        for units in thinned(UNITS[::2] if few else EIGHT_BIT_UNITS if eight else UNITS, scope, 3):
            fine = EIGHT_BIT_CONTEXTS if eight else FINE if units <= FEW_UNITS else CONTEXTS
            contexts = fine if scope == "full" else thinned(CONTEXTS, scope)
            yield decode_series(arena, *kind, *sizes(units), contexts)
    for cv in thinned(SPREADS, scope, 3):
        for units in thinned(UNEVEN, scope):
            yield mixed_series(arena, cv, *sizes(units), (1024, 4096, 8192))
    yield from latent_grid(arena, scope)


def prompts(arena: Arena, scope: Scope, held_out: bool) -> Iterator[Series]:
    """Attention of prompts: chunks on their past."""
    if held_out:
        yield from random_prompts(arena, scope)
    elif scope == "tiny":
        yield from chunk_series(arena, 128, 4, 16, (0, 16))
    else:
        for head_dim, heads in PREFILLS[: 5 if scope == "full" else 2]:
            for new in NEW:
                yield from chunk_series(arena, head_dim, heads, new, thinned(PAST, scope))
        for heads in DENSE_HEADS if scope == "full" else ():
            for new in DENSE_NEW:
                yield from chunk_series(arena, 128, heads, new, DENSE_PAST)


def random_decodes(arena: Arena, scope: Scope) -> Iterator[Series]:
    """Decodes off the grid, with head counts that the grid does not have."""
    if scope == "tiny":
        yield decode_series(arena, "bf16", 16, 128, 4, 3, 2, (40,))
        return
    for dtype, seed, full, quick in (("bf16", 2, 60, 12), ("fp8", 11, 48, 6), ("int8", 12, 48, 6)):
        draw = np.random.default_rng(seed)
        for _ in range(full if scope == "full" else quick):
            kv_heads, group = int(draw.choice([1, 2, 4, 8])), int(draw.choice([4, 8]))
            batch, context = int(2 ** draw.uniform(0, 7.5)), int(2 ** draw.uniform(8, 15.5))
            if batch * kv_heads * context * 256 <= MOST_DECODE:
                yield decode_series(arena, dtype, 16, 128, group, batch, kv_heads, (context,))


def random_mixed(arena: Arena, scope: Scope) -> Iterator[Series]:
    """Decodes over unequal contexts, as unequal as no batch of the grid."""
    draw = np.random.default_rng(13)
    for _ in range({"full": 48, "quick": 6, "tiny": 0}[scope]):
        cv, kv_heads = int(draw.uniform(20, 180)), int(draw.choice([2, 4, 8]))
        batch, context = int(2 ** draw.uniform(3, 7.5)), int(2 ** draw.uniform(9, 13.5))
        if batch * kv_heads * context * 256 <= MOST_DECODE:
            yield mixed_series(arena, cv, batch, kv_heads, (context,))


def random_prompts(arena: Arena, scope: Scope) -> Iterator[Series]:
    """Chunks off the grid."""
    draw = np.random.default_rng(3)
    if scope == "tiny":
        yield from chunk_series(arena, 128, 8, 20, (9,))
        return
    for _ in range({"full": 60, "quick": 8}[scope]):
        heads = int(draw.choice([8, 16, 32]))
        new, past = int(2 ** draw.uniform(6, 13)), int(draw.choice([0, 2 ** draw.uniform(9, 15.5)]))
        yield from chunk_series(arena, 128, heads, new, (past,))


def decode_series(
    arena: Arena,
    dtype: str,
    block_size: int,
    head_dim: int,
    group: int,
    batch: int,
    kv_heads: int,
    contexts: tuple[int, ...],
) -> Series:
    """Decode of equally long sequences."""
    units = batch * kv_heads
    at = (dtype, block_size, head_dim, group, units)
    read = 2 * units * head_dim
    fitting = tuple(context for context in contexts if read * context <= MOST_DECODE)

    def prepare(context: int) -> Work:
        return decode_work(arena, at, kv_heads, [context] * batch)

    return Series("decode_attention", at, fitting, prepare)


def decode_work(
    arena: Arena, at: tuple[str, int, int, int, int], kv_heads: int, lengths: list[int]
) -> Work:
    """Decode of sequences of any lengths."""
    dtype, block_size, head_dim, group, _ = at
    kv = arena.memory(dtype, block_size, kv_heads, head_dim)
    batch = len(lengths)
    sets = rotations(2 * sum(lengths) * kv_heads * head_dim * kv.k.element_size())
    tables = arena.tables(kv.num_blocks, batch, -(-max(lengths) // block_size), sets)
    q = arena.activations(batch, kv_heads * group, head_dim)
    held = arena.vector(lengths)
    return Work(lambda i: decode(q, kv, tables[i % sets], held), sets)


def mixed_series(
    arena: Arena, cv: int, batch: int, kv_heads: int, contexts: tuple[int, ...]
) -> Series:
    """Unequal sequences, lognormal with a coefficient of variation of ``cv`` %, over mean contexts."""
    shares = uneven(batch, cv / 100)

    def prepare(context: int) -> Work:
        lengths = [max(1, round(share * context)) for share in shares]
        return decode_work(arena, ("bf16", 16, 128, 4, batch * kv_heads), kv_heads, lengths)

    at = ("bf16", 4, cv, batch * kv_heads)
    return Series("decode_mixed", at, contexts, prepare)


def chunk_series(
    arena: Arena, head_dim: int, heads: int, new: int, pasts: tuple[int, ...]
) -> Iterator[Series]:
    """A chunk of one prompt on its past: by the kernel of this project, and by the library's."""
    fitting = tuple(past for past in pasts if heads * new * (past + new / 2) <= MOST_PAIRS)
    kernels: dict[str, Chunk] = {"paged": paged_chunk, "library": dense_chunk}
    for name, make in kernels.items():
        if fitting and (arena.device.type == "cuda" or name == "paged"):
            at = (name, "bf16", head_dim, heads, new)
            work = partial(make, arena, head_dim, heads, new)
            yield Series("prefill_attention", at, fitting, work, 3e-3)


def paged_chunk(arena: Arena, head_dim: int, heads: int, new: int, past: int) -> Work:
    """The chunk's queries over pages."""
    kv_heads, length = max(1, heads // 4), past + new
    kv = arena.memory("bf16", 16, kv_heads, head_dim)
    sets = rotations(4 * length * kv_heads * head_dim)
    tables = arena.tables(kv.num_blocks, 1, -(-length // 16), sets)
    q = arena.activations(new, heads, head_dim)
    starts, lengths = arena.vector([0, new]), arena.vector([length])
    return Work(lambda i: prefill(q, kv, tables[i % sets], starts, lengths), sets)


def dense_chunk(arena: Arena, head_dim: int, heads: int, new: int, past: int) -> Work:
    """As many query-key pairs in PyTorch's attention over dense KV, with cuDNN where it can.

    It has no causal mask that ends at the bottom right, so a chunk on a past is timed as its
    queries on ``past + new / 2`` keys without a mask.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    kv_heads, keys = max(1, heads // 4), past + new // 2 if past else new
    q = arena.activations(1, new, heads, head_dim).transpose(1, 2)
    k, v = (arena.activations(1, keys, kv_heads, head_dim).transpose(1, 2) for _ in range(2))
    choices = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]

    def launch(i: int) -> object:
        with sdpa_kernel(choices, set_priority=True):
            return scaled_dot_product_attention(q, k, v, is_causal=not past, enable_gqa=True)

    return Work(launch)
