"""What decode attention takes longer over unequal contexts than over as many equal ones.

Kernels that share a batch's tiles evenly among their programs read no more for it; but a program that
crosses short sequences starts each of them anew, and the longest sequence has most partial results to
merge. On the H200 that is some microseconds a layer, whatever the mean context (1,024 and 8,192 differ
less than two runs), so it is looked up by how unequal a batch is and by its size alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from math import isqrt
from statistics import fmean
from typing import Any

from kvsim.core import BatchShape
from kvsim.costs.operators import NO_TIME, Estimate, Place, Profile, Table
from kvsim.costs.splits import SPREADS

MIXED = {"decode_attention": "decode_mixed", "mla_decode": "mla_mixed"}
"""Tables of equal contexts, and those of the same kernel over unequal ones."""
BLOCK_SIZE, HEAD_DIM = 16, 128
"""Of the batches in ``decode_mixed``."""

Skew = Callable[[float, float, float], Estimate]
"""A time by query heads of a kv head (or of MLA), sequences (times kv heads) and variation."""


def skew(profile: Profile, table: str) -> Skew:
    """What a kernel takes longer for contexts whose coefficient of variation is given in percent.

    Nothing where the profile has no unequal batches of it; beyond the most unequal that was timed, as
    much as there.
    """
    mixed = MIXED.get(table)
    if mixed is None or mixed not in profile.operators:
        return lambda heads, size, variation: NO_TIME
    found: dict[tuple[int, int], dict[int, float]] = {}
    for one in profile.series(mixed):
        kind, heads, cv, size = one["at"]
        more = [
            time - profile.table(table).at(equal(table, kind, heads, size), x).time
            for x, time in zip(one["x"], one["median"], strict=True)
        ]
        found.setdefault((heads, size), {})[cv] = max(0.0, fmean(more))
    extra = Table("skew", ("heads", "size", "variation"), list(lines(found)))
    most = max(extra.xs)

    def longer(heads: float, size: float, variation: float) -> Estimate:
        found = extra.at((heads, size), min(variation, most))
        return found._replace(time=max(0.0, found.time))

    return longer


def equal(table: str, kind: str, heads: int, size: int) -> Place:
    """The place of equal contexts that a batch of ``decode_mixed`` or ``mla_mixed`` compares with."""
    if table == "decode_attention":
        return (kind, BLOCK_SIZE, HEAD_DIM, heads, size)
    return (kind, heads, size)


def lines(found: dict[tuple[int, int], dict[int, float]]) -> Iterator[Mapping[str, Any]]:
    """The series of a table over variation, which begin with nothing where all are equal."""
    for place, by_variation in found.items():
        xs = [0, *sorted(by_variation)]
        times = [by_variation.get(x, 0.0) for x in xs]
        yield {"at": list(place), "x": xs, "median": times, "p10": times, "p90": times}


def middle(place: int) -> float:
    """The variation, in percent, of batches between two of :data:`SPREADS`."""
    return (SPREADS[place] + SPREADS[min(place + 1, len(SPREADS) - 1)]) / 2


def stretches(shape: BatchShape, steps: int) -> list[tuple[int, int]]:
    """Places in :data:`SPREADS` that the decodes go through in a leap, with the steps at each.

    Contexts that all grow keep their variance, so relative to their mean it falls.
    """
    decodes, context = shape.decodes, shape.context_tokens
    variance = decodes * shape.context_squares - context * context  # times decodes squared
    if variance <= 0 or not context:
        return [(0, steps)]
    percent, found = isqrt(variance * 10_000), []
    while steps:
        place = bisect_right(SPREADS, percent // context) - 1
        here = min(steps, (percent // SPREADS[place] - context) // decodes + 1) if place else steps
        found.append((place, here))
        steps -= here
        context += here * decodes
    return found
