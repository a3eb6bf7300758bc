"""Moving whole blocks: copy-on-write on the device, and batches of blocks to and from the host.

One block is too small for a copy of its own (a 64 KB host copy runs at 8 GB/s where a large one
reaches 55), so many are gathered into one stretch of memory by one launch and moved together.

Memory is given as ``[planes, num_blocks, ...]``, blocks contiguous: a plane is the keys or the
values of one layer, so a launch moves a block of all layers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvsim.errors import ConfigError

WORDS = 2048
"""64-bit words that a program moves: 16 KB."""


def copy_blocks(memory: Tensor, sources: Tensor, targets: Tensor) -> None:
    """Copy block ``sources[i]`` to block ``targets[i]`` in every plane; ids are int ``[n]``.

    No target may be a source or occur twice. A pair with an id that does not exist moves nothing.
    """
    words = _words(memory)
    _move(words, words, sources, targets)


def gather_blocks(memory: Tensor, blocks: Tensor, out: Tensor, rows: Tensor | None = None) -> None:
    """Copy ``memory[:, blocks[i]]`` to ``out[rows[i]]``, by default ``out[i]``.

    ``out`` is contiguous ``[n, planes, ...]``. It may be pinned host memory, which the GPU then writes
    directly.
    """
    _move(_words(memory), _words(out).transpose(0, 1), blocks, rows)


def scatter_blocks(
    packed: Tensor, blocks: Tensor, memory: Tensor, rows: Tensor | None = None
) -> None:
    """Copy ``packed[rows[i]]`` to ``memory[:, blocks[i]]``: the inverse of :func:`gather_blocks`."""
    _move(_words(packed).transpose(0, 1), _words(memory), rows, blocks)


def offload(memory: Tensor, blocks: Tensor, staging: Tensor, host: Tensor) -> None:
    """Gather blocks into ``staging`` on the device, then move it to pinned ``host`` in one copy."""
    gather_blocks(memory, blocks, staging)
    host.copy_(staging, non_blocking=True)


def load(host: Tensor, blocks: Tensor, staging: Tensor, memory: Tensor) -> None:
    """Bring packed blocks back from pinned ``host`` in one copy and scatter them to ``blocks``."""
    staging.copy_(host, non_blocking=True)
    scatter_blocks(staging, blocks, memory)


def _words(memory: Tensor) -> Tensor:
    """A tensor ``[a, b, ...]`` with contiguous ``[...]`` as 64-bit words ``[a, b, words]``."""
    size = memory[0, 0].numel() * memory.element_size()
    if not memory[0, 0].is_contiguous() or size % 8:
        raise ConfigError(f"a block of {size} bytes, shape {tuple(memory.shape)}: need contiguous"
                          " blocks of a multiple of 8 bytes")  # fmt: skip
    return memory.flatten(2).view(torch.int64)


def _move(source: Tensor, target: Tensor, reads: Tensor | None, writes: Tensor | None) -> None:
    planes, words = source.shape[0], source.shape[2]
    ids = reads if reads is not None else writes
    assert ids is not None
    _move_kernel[(ids.shape[0], planes, triton.cdiv(words, WORDS))](
        source, target, ids if reads is None else reads, ids if writes is None else writes,
        source.shape[1], target.shape[1], words,
        source.stride(0), source.stride(1), target.stride(0), target.stride(1),
        READS=reads is not None, WRITES=writes is not None, WORDS=WORDS, num_warps=8,
    )  # fmt: skip


@triton.jit
def _move_kernel(
    source, target, reads, writes, source_blocks, target_blocks, words,
    source_plane, source_block, target_plane, target_block,
    READS: tl.constexpr, WRITES: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    index, plane = tl.program_id(0), tl.program_id(1).to(tl.int64)
    read = tl.load(reads + index).to(tl.int64) if READS else index.to(tl.int64)
    write = tl.load(writes + index).to(tl.int64) if WRITES else index.to(tl.int64)
    exists = (read >= 0) & (read < source_blocks) & (write >= 0) & (write < target_blocks)
    at = tl.program_id(2) * WORDS + tl.arange(0, WORDS)
    inside = at < tl.where(exists, words, 0)
    row = tl.load(source + plane * source_plane + read * source_block + at, mask=inside)
    tl.store(target + plane * target_plane + write * target_block + at, row, mask=inside)
