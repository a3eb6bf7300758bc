"""Kernels compiled before anything is timed, by several processes that share Triton's cache."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence

import torch

from .arena import Arena
from .attention import decodes, prompts
from .elementwise import elementwise
from .series import Scope, Series

WORKERS = min(32, os.cpu_count() or 1)
"""Processes that compile."""


def compile_ahead(scope: Scope, families: Sequence[str]) -> None:
    """Launch everything that Triton compiles once, in several processes that share its cache."""
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=compile_share, args=(scope, families, index))
        for index in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    torch.cuda.synchronize()


def compile_share(scope: Scope, families: Sequence[str], index: int) -> None:
    """Launch every ``WORKERS``-th series that uses Triton, on little memory."""
    arena = Arena("cuda", weight_bytes=2**26, kv_bytes=2**26)
    for number, series in enumerate(triton_series(arena, scope, families)):
        if number % WORKERS == index:
            for x in series.xs:
                series.prepare(x).launch(0)
    torch.cuda.synchronize()


def triton_series(arena: Arena, scope: Scope, families: Sequence[str]) -> Iterator[Series]:
    """Series of the families that use many variants of Triton kernels."""
    for held_out in (False, True):
        for source in (decodes, prompts, elementwise):
            if source.__name__ in families:
                yield from source(arena, scope, held_out)
