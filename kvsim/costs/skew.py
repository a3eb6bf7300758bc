"""What decode attention takes longer over unequal contexts than over as many equal ones.

Kernels that share a batch's tiles evenly among their programs read no more for it; but a program that
crosses short sequences starts each of them anew, and the longest sequence has most partial results to
merge. On the H200 that is some microseconds a layer, whatever the mean context (1,024 and 8,192 differ
less than two runs): about in proportion to the coefficient of variation.

A longer context must not make a batch cheaper, though it may make it more even. So a batch's time is
the sum of two that never fall: one of its tokens, and one of its tokens and :func:`further` ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import inf, isqrt, log, log1p, sqrt
from statistics import fmean
from typing import Any

from kvsim.core import BatchShape
from kvsim.costs.curves import Curve
from kvsim.costs.operators import Place, Profile, Table

MIXED = {"decode_attention": "decode_mixed", "mla_decode": "mla_mixed"}
"""Tables of equal contexts, and those of the same kernel over unequal ones."""
BLOCK_SIZE, HEAD_DIM, KV_HEADS = 16, 128, 8
"""Of the batches in ``decode_mixed``."""

Skew = Callable[[float, float], float]
"""Microseconds by query heads of a kv head (or of MLA) and sequences (times kv heads): what a batch
takes longer is that many times :func:`inequality`."""


def skew(profile: Profile, table: str) -> Skew:
    """How sensitive a kernel is to unequal contexts; not at all where the profile timed none.

    Least squares over the batches of a size.
    """
    mixed = MIXED.get(table)
    if mixed is None or mixed not in profile.operators:
        return lambda heads, size: 0.0
    found: dict[int, dict[int, list[tuple[float, float]]]] = {}
    for one in profile.series(mixed):
        kind, heads, cv, size = one["at"]
        sequences = size // KV_HEADS if table == "decode_attention" else size
        more = [
            time - profile.table(table).at(equal(table, kind, heads, size), x).time
            for x, time in zip(one["x"], one["median"], strict=True)
        ]
        point = (inequality(sequences, cv / 100), fmean(more))
        found.setdefault(heads, {}).setdefault(size, []).append(point)
    scales = Table("skew", ("heads",), list(lines(found)))
    return lambda heads, size: max(0.0, scales.at((heads,), size).time)


def lines(
    found: Mapping[int, Mapping[int, list[tuple[float, float]]]],
) -> Iterator[Mapping[str, Any]]:
    """The series of a table over sizes: slopes of lines through 0 that are nearest to the points."""
    for heads, by_size in found.items():
        xs = sorted(by_size)
        slopes = [
            max(0.0, sum(x * y for x, y in by_size[size]) / sum(x * x for x, _ in by_size[size]))
            for size in xs
        ]
        yield {"at": [heads], "x": xs, "median": slopes, "p10": slopes, "p90": slopes}


def equal(table: str, kind: str, heads: int, size: int) -> Place:
    """The place of equal contexts that a batch of ``decode_mixed`` or ``mla_mixed`` compares with."""
    if table == "decode_attention":
        return (kind, BLOCK_SIZE, HEAD_DIM, heads, size)
    return (kind, heads, size)


def inequality(sequences: float, variation: float) -> float:
    """How unequal contexts are: nearly their coefficient of variation while that is small.

    With s the deviation of a sample of contexts and m their mean, the root of their number times
    log(1 + s / m / root): the logarithm of how many times its tokens a batch has with the further ones.
    """
    if sequences <= 1:
        return 0.0
    return sqrt(sequences) * log1p(variation / sqrt(sequences - 1))


def further(shape: BatchShape) -> int:
    """Tokens that decodes of unequal contexts are charged for besides their own: constant in a leap.

    That is n standard errors of the mean of n contexts. One context that grows takes no more from it
    than it grows itself (it is a norm of the deviations from the mean, in which one token changes by one
    at most), and another sequence takes no more than its own context: so their sum with the batch's
    tokens never falls.
    """
    decodes, context = shape.decodes, shape.context_tokens
    variance = decodes * shape.context_squares - context * context  # times decodes squared
    return isqrt(variance // (decodes - 1)) if decodes > 1 and variance > 0 else 0


def apart(even: Curve, alone: Curve, most: float) -> tuple[Curve, Curve]:
    """What ``even`` takes by its tokens, and what by those with :func:`further` ones; never falling.

    The second rises by ``most`` picoseconds each time that tokens are e times as many. One long sequence
    beside short ones has as many further tokens as its own; it should take what it takes ``alone``, so
    where ``even`` ones are faster, the second rises by the difference each time that tokens double. It
    never rises faster than ``even``.
    """
    if not most:
        return even.split(lambda begin, end: 0.0)

    def rise(begin: int, end: int) -> float:
        if not begin:
            return inf
        lost = max(alone(tokens) - even(tokens) for tokens in (begin, end))
        return max(most, lost / log(2)) * log(end / begin)

    return even.split(rise)
