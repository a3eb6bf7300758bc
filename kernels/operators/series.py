"""What is measured: series of points along one axis, each at fixed values of an operator's others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from .arena import Arena
from .timing import Work

Scope = Literal["full", "quick", "tiny"]
"""How much is measured: everything, a sparse grid, or next to nothing (to test without a GPU)."""
Place = tuple[int | str, ...]


class Series(NamedTuple):
    """Points of one operator that differ only in ``x``."""

    operator: str
    at: Place
    """Values of the operator's other axes (see AXES)."""
    xs: tuple[int, ...]
    prepare: Callable[[int], Work]
    """Work of the point ``x``."""
    heat: float = 2e-3
    """Seconds of load before a point is timed."""
    rest: float = 0.0
    """Seconds of idleness before that load."""
    graph: bool = True
    """Whether replays of a graph are timed; without one the host's work is in the time, and if the
    series comes again the shorter time counts."""


Source = Callable[[Arena, Scope, bool], Iterator[Series]]
"""Series of a family of operators on an arena: its grid, or the shapes held out for validation."""

AXES: dict[str, tuple[str, ...]] = {
    "gemm": ("dtype", "n", "k", "m"),
    "gemm_model": ("dtype", "n", "k", "m"),
    "gemm_sustained": ("m", "n", "k", "milliseconds"),
    "decode_attention": (
        "kv_dtype",
        "block_size",
        "head_dim",
        "group",
        "sequence_heads",
        "context",
    ),
    "decode_mixed": ("kv_dtype", "group", "cv_percent", "sequence_heads", "context"),
    "prefill_attention": ("kernel", "kv_dtype", "head_dim", "heads", "new", "past"),
    "mla_decode": ("kv_dtype", "heads", "batch", "context"),
    "mla_mixed": ("kv_dtype", "heads", "cv_percent", "batch", "context"),
    "moe": ("kernel", "dtype", "experts", "top_k", "hidden", "inter", "tokens"),
    "moe_other": ("kernel", "dtype", "experts", "top_k", "hidden", "inter", "tokens"),
    "rms_norm": ("width", "tokens"),
    "rope": ("width", "tokens"),
    "silu_mul": ("width", "tokens"),
    "embedding": ("width", "tokens"),
    "kv_write": ("kv_dtype", "width", "tokens"),
    "sample": ("vocab", "rows"),
    "block_copy": ("bytes", "count"),
    "host_to_device": ("count", "bytes"),
    "device_to_host": ("count", "bytes"),
    "launch": ("mode", "kernels"),
    "copy": ("kind", "bytes"),
    "all_reduce": ("gpus", "bytes"),
    "all_gather": ("gpus", "bytes"),
    "send": ("gpus", "bytes"),
}
"""Axes of every table; the last is the one that a series runs along.

``sequence_heads`` is sequences times kv heads of one GPU: the decode kernel's units of work.
``group``: query heads a kv head; ``width``: elements of a token; ``bytes``: of one block or copy.
"""


def thinned(values: tuple[int, ...], scope: Scope, step: int = 2) -> tuple[int, ...]:
    """All values, every ``step``-th and the last for a quick run, the first two for a tiny one."""
    if scope == "full":
        return values
    if scope == "tiny":
        return values[:2]
    return tuple(dict.fromkeys((*values[::step], values[-1])))
