"""The roofline of what was timed: the least that an operator of a profile moves and computes."""

from __future__ import annotations

from collections.abc import Callable

from kvsim.catalog.formats import FORMATS
from kvsim.costs.demand import Demand
from kvsim.costs.operators import Place

BYTES = {"bf16": 2, "fp8": 1}
PEAKS = {"bf16": "bfloat16", "fp8": "fp8"}


def gemm(place: Place, m: int) -> Demand:
    """A product of m rows: weights and both activations are moved once."""
    dtype, n, k = str(place[0]), int(place[1]), int(place[2])
    size = BYTES[dtype]
    return Demand(size * (n * k + m * k) + 2 * m * n, 2.0 * m * n * k, PEAKS[dtype])


def decode_attention(place: Place, context: int) -> Demand:
    """One query a head for each sequence: all keys and values are read once, with their scales."""
    dtype, head, group, heads = str(place[0]), int(place[2]), int(place[3]), int(place[4])
    read = 2 * context * FORMATS[dtype].row_bytes(heads, head)
    return Demand(read, 4.0 * context * heads * group * head)


def prefill_attention(place: Place, past: int) -> Demand:
    """New tokens on a past: causal query-key pairs, twice a product; queries and results moved once."""
    head, heads, new = int(place[2]), int(place[3]), int(place[4])
    pairs = new * past + new * (new + 1) // 2
    return Demand(4 * new * heads * head, 4.0 * pairs * heads * head)


def moved(factor: int) -> Callable[[Place, int], Demand]:
    """A copy or a read of ``x`` bytes."""
    return lambda _, size: Demand(float(factor * size))


BOUNDS: dict[str, Callable[[Place, int], Demand]] = {
    "gemm": gemm,
    "gemm_model": gemm,
    "decode_attention": decode_attention,
    "prefill_attention": prefill_attention,
}
"""Operators whose demand follows from their shape alone."""


def least(operator: str, place: Place, x: int) -> Demand | None:
    """The demand of a timed shape; None where it does not follow from the shape."""
    if operator == "copy":
        return moved(2 if place[0] == "copy" else 1)(place, x)
    bound = BOUNDS.get(operator)
    return None if bound is None else bound(place, x)
