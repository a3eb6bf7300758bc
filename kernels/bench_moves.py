"""What is timed of memory alone: writing new KV, copying blocks, and trips to the host."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .bench_memory import DEVICE, DTYPES, memory
from .bench_row import Launch, Row
from .move import copy_blocks, gather_blocks, load, offload
from .write import write_kv


def moves() -> Iterator[Row]:
    """Writing, copying, and trips to the host."""
    for dtype in ("bf16", "fp8"):
        yield write_row(2048, dtype)
        yield write_row(128, dtype)
    planes = torch.empty(64, 8192, 16, 8, 128, dtype=torch.bfloat16, device=DEVICE)
    shuffled = torch.randperm(8192, device=DEVICE).int()
    block = planes[:, 0].nbytes
    for count in (1, 16, 256):
        source, target = shuffled[:count], shuffled[count : 2 * count]
        row = Row("block copy", {"blocks": count, "bytes": block}, 2 * count * block, 0)
        row.launches = [lambda a=source, b=target: copy_blocks(planes, a, b)]  # type: ignore[misc]
        yield row
    for count in (1, 16, 64, 256):
        yield from host_rows(planes, shuffled[:count])


def write_row(tokens: int, dtype: str) -> Row:
    """New tokens' KV into random slots."""
    kv = memory(65536, 16, dtype)
    keys, values = torch.randn(2, tokens, 8, 128, device=DEVICE, dtype=torch.bfloat16)
    slots = torch.randperm(65536, device=DEVICE)[:tokens].int()
    size = 2 * tokens * 8 * 128 * (2 + DTYPES[dtype].itemsize)
    row = Row("kv write", {"tokens": tokens, "kv": dtype}, size, 0)
    row.launches = [lambda: write_kv(keys, values, kv, slots)]
    return row


def host_rows(planes: torch.Tensor, blocks: torch.Tensor) -> Iterator[Row]:
    """Blocks of all layers to pinned memory and back: through staging, and straight."""
    shape = (len(blocks), planes.shape[0], *planes.shape[2:])
    staging = torch.empty(shape, dtype=planes.dtype, device=DEVICE)
    host = torch.empty(shape, dtype=planes.dtype, pin_memory=True)
    ways: dict[str, Launch] = {
        "to host, staged": lambda: offload(planes, blocks, staging, host),
        "to host, direct": lambda: gather_blocks(planes, blocks, host),
        "from host, staged": lambda: load(host, blocks, staging, planes),
    }
    for name, launch in ways.items():
        row = Row(name, {"blocks": len(blocks), "bytes": staging[0].nbytes}, staging.nbytes, 0)
        row.launches = [launch]
        yield row
