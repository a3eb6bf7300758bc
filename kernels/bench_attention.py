"""What is timed of attention: decodes, chunks of prompts, latent rows and shared prefixes."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from . import reference
from .bench_memory import DEVICE, DTYPES, ROTATION, memory, tables
from .bench_row import Row
from .cascade import cascade_decode
from .decode import decode
from .mla import mla_decode
from .prefill import prefill
from .timing import time_launches


class Decoding(NamedTuple):
    """Query heads, and the memory of 8 kv heads that they read."""

    heads: int = 32
    dtype: str = "bf16"
    block_size: int = 16
    token_scales: bool = False
    window: int = 0


def decode_row(batch: int, context: int, way: Decoding, *, compared: float | None = None) -> Row:
    """Decode of equal contexts."""
    row = batch_row([context] * batch, way)
    row.shape |= {"context": context}
    row.reference = compared
    return row


def skewed_row() -> Row:
    """127 contexts of 1k and one of 128k: the bytes of a batch of 2k contexts."""
    row = batch_row([131072] + [1024] * 127, Decoding())
    row.shape |= {"context": "127 x 1024, 1 x 131072"}
    return row


def batch_row(lengths: list[int], way: Decoding) -> Row:
    """Decode of any contexts."""
    heads, dtype, block_size, token_scales, window = way
    batch, held = len(lengths), sum(lengths)
    seen = sum(min(n, window or n) for n in lengths)
    size = seen * 2 * 8 * (128 * DTYPES[dtype].itemsize + 4 * token_scales)
    tokens = max(held, min(48 * held, int(ROTATION / size * held) + 1))
    kv = memory(tokens + batch * block_size, block_size, dtype, token_scales=token_scales)
    q = torch.randn(batch, heads, 128, device=DEVICE, dtype=torch.bfloat16)
    sizes = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
    shape: dict[str, int | str] = {"batch": batch, "heads": f"{heads}/8", "kv": dtype}
    shape |= {"block": block_size, "scales": "token" if token_scales else "head", "window": window}
    row = Row("decode", shape, size + 2 * q.nbytes, 4 * seen * heads * 128)
    choices = tables(kv, lengths, size)
    row.launches = [
        lambda table=table: decode(q, kv, table, sizes, window=window)  # type: ignore[misc]
        for table in choices
    ]
    last = (choices[-1][-1:], sizes[-1:])
    expected, _ = reference.decode(q[-1:], kv, *last, scale=128**-0.5, window=window)
    row.error = relative_error(decode(q, kv, choices[-1], sizes, window=window)[0][-1:], expected)
    return row


def prefill_row(new: int, context: int, *, compared: float | None = None) -> Row:
    """One chunk of ``new`` tokens that ends a context."""
    kv = memory(context, 16, "bf16")
    (table,) = tables(kv, [context], math.inf)
    q = torch.randn(new, 32, 128, device=DEVICE, dtype=torch.bfloat16)
    starts = torch.tensor([0, new], dtype=torch.int32, device=DEVICE)
    sizes = torch.tensor([context], dtype=torch.int32, device=DEVICE)
    pairs = new * (context - new) + new * (new + 1) / 2
    row = Row("prefill", {"new": new, "context": context, "heads": "32/8", "kv": "bf16"},
              context * 4096 + 2 * q.nbytes, 4 * pairs * 32 * 128)  # fmt: skip
    row.launches = [lambda: prefill(q, kv, table, starts, sizes)]
    row.reference = compared
    k, v = reference.read(kv, table[0], 0, context)
    expected, _ = reference.attention(q[-64:], k, v, scale=128**-0.5)
    row.error = relative_error(prefill(q, kv, table, starts, sizes)[0][-64:], expected)
    return row


def mla_row(batch: int, context: int, heads: int) -> Row:
    """Decode over latent rows of 512 + 64."""
    size = batch * context * 576 * 2
    sets = max(1, min(48, math.ceil(ROTATION / size)))
    cache = torch.randn(sets * batch * context // 16, 16, 576, device=DEVICE, dtype=torch.bfloat16)
    blocks = torch.randperm(cache.shape[0], device=DEVICE).int().view(sets, batch, context // 16)
    q = torch.randn(batch, heads, 576, device=DEVICE, dtype=torch.bfloat16)
    sizes = torch.full((batch,), context, dtype=torch.int32, device=DEVICE)
    row = Row("mla decode", {"batch": batch, "context": context, "heads": heads},
              size + q.nbytes * 2, 2 * batch * context * heads * (576 + 512))  # fmt: skip
    row.launches = [
        lambda table=table: mla_decode(q, cache, table, sizes, rank=512, scale=0.04)  # type: ignore[misc]
        for table in blocks
    ]
    one = (q[-1:], cache, blocks[0, -1:], sizes[-1:])
    expected, _ = reference.mla_decode(*one, rank=512, scale=0.04)
    found, _ = mla_decode(q, cache, blocks[0], sizes, rank=512, scale=0.04)
    row.error = relative_error(found[-1:], expected)
    return row


def cascade_row(batch: int, prefix: int, suffix: int) -> Row:
    """A shared prefix read once; the reference is plain decode of the same sequences."""
    kv = memory(prefix + batch * suffix, 16, "bf16")
    (table,) = tables(kv, [prefix + batch * suffix], math.inf)
    common, own = table[:, : prefix // 16], table[:, prefix // 16 :].view(batch, -1)
    q = torch.randn(batch, 32, 128, device=DEVICE, dtype=torch.bfloat16)
    length = torch.tensor([prefix], dtype=torch.int32, device=DEVICE)
    sizes = torch.full((batch,), suffix, dtype=torch.int32, device=DEVICE)
    whole = torch.cat([common.expand(batch, -1), own], 1)
    plain = time_launches([lambda: decode(q, kv, whole, sizes + prefix)])
    shape: dict[str, int | str] = {"batch": batch, "prefix": prefix, "suffix": suffix}
    row = Row("cascade", shape, (prefix + batch * suffix) * 4096 + 2 * q.nbytes,
              4 * batch * (prefix + suffix) * 32 * 128)  # fmt: skip
    row.launches = [lambda: cascade_decode(q, kv, common, length, own, sizes)]
    row.reference = 1e6 * plain.median
    return row


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """||found - expected|| / ||expected||."""
    return float((found.double() - expected).norm() / expected.norm())
