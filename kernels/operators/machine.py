"""The machine itself: copies, launches, and the rate that a hot card keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ..move import copy_blocks
from .arena import Arena
from .series import Scope, Series, thinned
from .timing import Timing, Work, event, summary

COPY_BYTES = (
    2**12, 2**14, 2**16, 2**17, 2**18, 2**19, 2**20, 2**21, 2**22, 2**24, 2**26, 2**28,
)  # fmt: skip
COPIES = (1, 2, 4, 8, 16, 32, 64)
MOST_COPIED = 2**28
BLOCK_BYTES = (2**12, 2**13, 2**14, 2**15, 2**16, 2**17, 2**18)
BLOCKS = (1, 8, 32, 64, 128, 256, 512)
PEAK_BYTES = (2**28, 2**30, 2**32)
PASSES = 3
"""How often what turns on the host is timed: for tenths of a second it may take twice as long."""
SUSTAINED = ((8192, 8192, 8192), (2048, 28672, 4096), (2048, 4096, 14336))
"""m, n, k of products run for seconds on end."""


def machine(arena: Arena, scope: Scope, held_out: bool) -> Iterator[Series]:
    """Everything about the machine that is timed point by point."""
    if held_out:
        if arena.device.type == "cuda":
            yield from random_copies(arena, scope)
        return
    yield from peaks(arena, scope)
    yield from block_copies(arena, scope)
    for _ in range(PASSES):
        yield from launches(arena, scope)
        if arena.device.type == "cuda":
            yield from transfers(arena, scope)


def peaks(arena: Arena, scope: Scope) -> Iterator[Series]:
    """Copy of a buffer onto another (bytes count once), and a reduction that only reads."""
    sizes = thinned(PEAK_BYTES, scope) if scope != "tiny" else (2**16,)

    def copying(size: int) -> Work:
        source = torch.ones(size // 4, device=arena.device)
        target = torch.empty_like(source)
        return Work(lambda i: target.copy_(source))

    def reading(size: int) -> Work:
        source = torch.ones(size // 4, device=arena.device)
        return Work(lambda i: source.sum())

    yield Series("copy", ("copy",), sizes, copying, graph=False)
    yield Series("copy", ("read",), sizes, reading)


def block_copies(arena: Arena, scope: Scope) -> Iterator[Series]:
    """Copy-on-write of scattered blocks by the kernel of this project."""
    for size in thinned(BLOCK_BYTES, scope):
        yield Series("block_copy", (size,), thinned(BLOCKS, scope), block_pairs(arena, size))


def block_pairs(arena: Arena, size: int) -> Callable[[int], Work]:
    """Works that copy a number of blocks of ``size`` bytes onto as many others."""

    def prepare(count: int) -> Work:
        blocks = min(32768, arena.kv_bytes // 4 // size)
        memory = torch.zeros((1, blocks, size // 8), dtype=torch.int64, device=arena.device)
        order = torch.randperm(blocks, device=arena.device, generator=arena.generator)
        pairs = [order[(torch.arange(2 * count, device=arena.device) + 2 * i * count) % blocks]
                 for i in range(4)]  # fmt: skip
        return Work(lambda i: copy_blocks(memory, pairs[i % 4][:count], pairs[i % 4][count:]), 4)

    return prepare


def launches(arena: Arena, scope: Scope) -> Iterator[Series]:
    """Kernels that do next to nothing, in a graph and launched one by one: what a launch costs."""
    cell = torch.zeros(32, device=arena.device)

    def chain(kernels: int) -> Work:
        def launch(i: int) -> None:
            for _ in range(kernels):
                cell.add_(1)

        return Work(launch)

    counts = thinned((1, 64, 512), scope)
    yield Series("launch", ("graph",), counts, chain)
    yield Series("launch", ("eager",), counts, chain, graph=False)


def transfers(arena: Arena, scope: Scope) -> Iterator[Series]:
    """Copies between pinned host memory and the device: ``count`` of them, one behind the other."""
    for count in thinned(COPIES, scope):
        sizes = tuple(b for b in thinned(COPY_BYTES, scope) if b * count <= MOST_COPIED)
        for name in ("host_to_device", "device_to_host"):
            yield Series(name, (count,), sizes, copies(arena, name, count), graph=False)


def random_copies(arena: Arena, scope: Scope) -> Iterator[Series]:
    """Copies of blocks, and to and from the host, of sizes between those of the grid."""
    draw = np.random.default_rng(15)
    shapes = {"full": 24, "quick": 3, "tiny": 0}[scope]
    for _ in range(shapes):
        size, count = int(2 ** draw.uniform(12, 18)) // 512 * 512, int(2 ** draw.uniform(0, 9))
        yield Series("block_copy", (size,), (count,), block_pairs(arena, size))
    moved = [
        (name, int(2 ** draw.uniform(12, 26)) // 512 * 512, int(2 ** draw.uniform(0, 6)))
        for name in ("host_to_device", "device_to_host")
        for _ in range(shapes)
    ]
    for name, size, count in PASSES * moved:
        if size * count <= MOST_COPIED:
            yield Series(name, (count,), (size,), copies(arena, name, count), graph=False)


def copies(arena: Arena, name: str, count: int) -> Callable[[int], Work]:
    """Works that move ``count`` separate pieces."""

    def prepare(size: int) -> Work:
        host = torch.empty((count, size), dtype=torch.uint8, pin_memory=True)
        device = torch.empty((count, size), dtype=torch.uint8, device=arena.device)
        source, target = (host, device) if name == "host_to_device" else (device, host)
        pieces = list(zip(target.unbind(), source.unbind(), strict=True))

        def launch(i: int) -> None:
            for to, of in pieces:
                to.copy_(of, non_blocking=True)

        return Work(launch)

    return prepare


def sustained(arena: Arena, scope: Scope) -> Iterator[tuple[tuple[int, int, int], int, Timing]]:
    """Products repeated without a pause: their shape, milliseconds of load so far, and their time
    since the mark before."""
    marks = {"full": (50, 250, 1000, 2500), "quick": (50, 1000), "tiny": ()}[scope]
    for m, n, k in SUSTAINED if arena.device.type == "cuda" else ():
        left, right = arena.activations(m, k), arena.activations(n, k).t()
        out = torch.empty((m, n), dtype=arena.dtype, device=arena.device)
        time.sleep(0.5)
        start = time.perf_counter()
        for mark in marks:
            spans = timed_until(partial(torch.mm, left, right, out=out), start, mark)
            yield (m, n, k), mark, summary(spans)


def timed_until(launch: Callable[[], Tensor], start: float, mark: int) -> list[float]:
    """Microseconds of every launch until ``mark`` milliseconds after the start."""
    spans: list[float] = []
    while not spans or time.perf_counter() - start < mark / 1e3:
        marks = [event() for _ in range(11)]
        marks[0].record()
        for point in marks[1:]:
            launch()
            point.record()
        marks[-1].synchronize()
        spans += [1e3 * marks[i].elapsed_time(marks[i + 1]) for i in range(10)]
    return spans
