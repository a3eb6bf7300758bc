"""What paging itself costs on a GPU: attention by block size and order, copy-on-write, and swapping."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kvsim.kernels.decode import decode
from kvsim.kernels.move import copy_blocks, gather_blocks, load, offload, scatter_blocks
from kvsim.kernels.paged import PagedKV, empty_kv
from kvsim.kernels.prefill import prefill
from kvsim.kernels.timing import Spread, time_chain, time_launches

HEADS, KV_HEADS, DIM, LAYERS = 32, 8, 128, 32
"""Llama-3-8B."""
BLOCK_SIZES = (1, 16, 32, 64, 256)
DECODES = ((1, 8192), (16, 2048), (64, 2048), (64, 8192))
"""Sequences and tokens of each."""
PROMPT = (1024, 4096)
"""New tokens, and all that they attend to."""
ROTATION = 4
"""Sets of tables that take turns, so that no launch finds its KV in the cache."""
FORKS = (1, 16, 64)
"""Blocks copied at a time."""
SWAPPED = 256 << 20
"""Bytes moved to the host and back at a time."""
Row = dict[str, Any]


def orders(blocks: int) -> dict[str, Tensor]:
    """Blocks one after another, and shuffled."""
    ordered = torch.arange(blocks, dtype=torch.int32, device="cuda")
    shuffled = torch.randperm(blocks, device="cuda", generator=_random()).int()
    return {"ordered": ordered, "random": shuffled}


def _random() -> torch.Generator:
    return torch.Generator("cuda").manual_seed(0)


def memory(tokens: int, block_size: int) -> PagedKV:
    """Random keys and values of one layer."""
    kv = empty_kv(-(-tokens // block_size), block_size, KV_HEADS, DIM)
    for part in (kv.k, kv.v):
        part.normal_(generator=_random())
    return kv


def attention() -> Iterator[Row]:
    """Decode and prompt attention over a contiguous range, and over blocks of every size and order."""
    for batch, context in DECODES:
        base = over_range(batch, context)
        yield row("decode", batch, context, "range", "", base, base)
        for block_size in BLOCK_SIZES:
            for order, spread in over_blocks(batch, context, block_size):
                yield row("decode", batch, context, str(block_size), order, spread, base)
    new, context = PROMPT
    base = prompt_over_range(new, context)
    yield row("prompt", new, context, "range", "", base, base)
    for block_size in BLOCK_SIZES:
        for order, spread in prompt_over_blocks(new, context, block_size):
            yield row("prompt", new, context, str(block_size), order, spread, base)


def row(
    kind: str, count: int, context: int, block: str, order: str, spread: Spread, base: Spread
) -> Row:
    """A time in microseconds, and over that on a contiguous range."""
    times = {"median": spread.median * 1e6, "p10": spread.p10 * 1e6, "p90": spread.p90 * 1e6}
    shape = {"kind": kind, "count": count, "context": context, "block": block, "order": order}
    return {**shape, **times, "ratio": spread.median / base.median}


def queries(count: int) -> Tensor:
    """New tokens' queries."""
    return torch.randn(count, HEADS, DIM, device="cuda", dtype=torch.bfloat16)


def lengths_of(batch: int, context: int) -> Tensor:
    """Equal contexts."""
    return torch.full((batch,), context, dtype=torch.int32, device="cuda")


def over_range(batch: int, context: int) -> Spread:
    """Decode on ranges of exactly the context."""
    regions = memory(ROTATION * batch * context, 1).regions(context)
    q, lengths = queries(batch), lengths_of(batch, context)
    starts = torch.arange(ROTATION * batch, dtype=torch.int32, device="cuda") * context
    tables = starts.view(ROTATION, batch, 1)
    return time_chain([partial(decode, q, regions, table, lengths) for table in tables])


def over_blocks(batch: int, context: int, block_size: int) -> Iterator[tuple[str, Spread]]:
    """Decode on blocks."""
    kv = memory(ROTATION * batch * context, block_size)
    q, lengths = queries(batch), lengths_of(batch, context)
    for order, blocks in orders(kv.num_blocks).items():
        tables = blocks.view(ROTATION, batch, -1)
        yield order, time_chain([partial(decode, q, kv, table, lengths) for table in tables])


def prompt_over_range(new: int, context: int) -> Spread:
    """A chunk at the end of a range."""
    regions = memory(ROTATION * context, 1).regions(context)
    starts = torch.arange(ROTATION, dtype=torch.int32, device="cuda")[:, None, None] * context
    return _prompt(new, context, regions, starts)


def prompt_over_blocks(new: int, context: int, block_size: int) -> Iterator[tuple[str, Spread]]:
    """A chunk at the end of blocks."""
    kv = memory(ROTATION * context, block_size)
    for order, blocks in orders(kv.num_blocks).items():
        yield order, _prompt(new, context, kv, blocks.view(ROTATION, 1, -1))


def _prompt(new: int, context: int, kv: PagedKV, tables: Tensor) -> Spread:
    q, lengths = queries(new), lengths_of(1, context)
    begins = torch.tensor([0, new], dtype=torch.int32, device="cuda")
    return time_chain([partial(prefill, q, kv, table, begins, lengths) for table in tables])


def planes(block_size: int, tokens: int) -> Tensor:
    """KV memory of all layers."""
    blocks = tokens // block_size
    shape = (2 * LAYERS, blocks, block_size, KV_HEADS, DIM)
    return torch.empty(shape, dtype=torch.bfloat16, device="cuda").normal_(generator=_random())


def copies() -> Iterator[Row]:
    """Copy-on-write: whole blocks of all layers, some at a time."""
    for block_size in BLOCK_SIZES[1:]:
        kv = planes(block_size, 64 * 512)
        shuffled = orders(kv.shape[1])["random"]
        size = kv[:, 0].nbytes
        for count in (forks for forks in FORKS if 2 * forks <= kv.shape[1]):
            source, target = shuffled[:count], shuffled[count : 2 * count]
            spread = time_launches([partial(copy_blocks, kv, source, target)])
            yield {
                "block": block_size,
                "copied": count,
                "bytes": count * size,
                "microseconds": spread.median * 1e6,
                "bytes_per_second": 2 * count * size / spread.median,
            }


def swaps() -> Iterator[Row]:
    """Blocks to pinned host memory and back: each by a copy of its own, gathered first, or by a kernel."""
    for block_size in BLOCK_SIZES[1:]:
        kv = planes(block_size, 64 * 512)
        count = SWAPPED // kv[:, 0].nbytes
        blocks = orders(kv.shape[1])["random"][:count]
        staging = torch.empty((count, *kv[:, 0].shape), dtype=kv.dtype, device="cuda")
        host = torch.empty(staging.shape, dtype=kv.dtype, pin_memory=True)
        ids = blocks.tolist()
        ways = (
            ("out, plane by plane", partial(one_by_one, kv, ids, host), 1),
            ("out, gathered", partial(offload, kv, blocks, staging, host), 5),
            ("in, gathered", partial(load, host, blocks, staging, kv), 5),
            ("out, written by the kernel", partial(gather_blocks, kv, blocks, host), 5),
            ("in, read by the kernel", partial(scatter_blocks, host, blocks, kv), 5),
        )
        for way, work, repeats in ways:
            seconds = elapsed(work, repeats)
            yield {
                "block": block_size,
                "way": way,
                "blocks": count,
                "bytes_per_second": host.nbytes / seconds,
            }


def one_by_one(kv: Tensor, blocks: list[int], host: Tensor) -> None:
    """A copy of its own for every plane of every block."""
    for place, block in enumerate(blocks):
        for plane in range(kv.shape[0]):
            host[place, plane].copy_(kv[plane, block], non_blocking=True)


def elapsed(work: Any, repeats: int) -> float:
    """Median seconds of work that is launched from the host, after one that is not counted."""
    found = []
    for _ in range(repeats + 1):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        work()
        last.record()
        torch.cuda.synchronize()
        found.append(first.elapsed_time(last) / 1e3)
    return sorted(found[1:])[repeats // 2]
