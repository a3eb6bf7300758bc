"""How evenly a decode attention kernel shares its work among a GPU's multiprocessors.

FlashAttention-3 cuts each sequence's context into splits of about an equal part of all work, 1.1 times
what one multiprocessor would get, and takes sequences in the batch's order. A sequence a little longer
than that part becomes two splits, so that there are more splits than multiprocessors and some wait for
a second round. The last to end decides. (``prepare_varlen_num_blocks`` of its ``hopper`` folder.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from heapq import heapreplace
from math import ceil, isqrt, log1p, sqrt
from random import Random
from statistics import fmean

from kvsim.core import BatchShape

SPREADS = (0, 2, 5, 10, 15, 20, 30, 45, 70, 100, 140)
"""Coefficients of variation of a batch's contexts, percent, between which it counts as alike."""
MARGIN, MOST_SPLITS = 1.1, 32
DRAWS = 32
"""Random batches that a figure of unequal ones is the mean of; each is a smaller one and more."""
FINE, COARSE = 48, 16
"""Sequences up to which each size of an unequal batch is worked out; beyond, only multiples of the
second are, and sizes between two lie between their figures."""
SHORTEST = 0.02


@cache
def imbalance(sequences: int, heads: int, spread: int, processors: int) -> float:
    """Time of the busiest multiprocessor over that of an even share, 1 or more.

    ``sequences`` times ``heads`` KV heads, whose contexts vary as ``SPREADS[spread]`` to the next says.
    """
    if coarse(sequences, spread):
        return between(sequences, lambda size: imbalance(size, heads, spread, processors))
    return fmean(busiest(one, heads, processors) for one in batches(sequences, spread))


@cache
def longest(sequences: int, spread: int) -> float:
    """The longest of as many contexts that vary so, over their mean."""
    if coarse(sequences, spread):
        return between(sequences, lambda size: longest(size, spread))
    return fmean(max(one) / fmean(one) for one in batches(sequences, spread))


def coarse(sequences: int, spread: int) -> bool:
    """Whether a batch's figures lie between those of two others."""
    return spread > 0 and sequences > FINE and sequences % COARSE > 0


def between(sequences: int, figure: Callable[[int], float]) -> float:
    """A figure between those of the two sizes around."""
    low, rest = divmod(sequences, COARSE)
    less, more = figure(low * COARSE), figure((low + 1) * COARSE)
    return less + (more - less) * rest / COARSE


def batches(sequences: int, spread: int) -> Iterator[list[float]]:
    """Random contexts, relative to their mean."""
    if sequences == 1 or not spread:
        yield [1.0] * sequences
        return
    low, high = SPREADS[spread], SPREADS[min(spread + 1, len(SPREADS) - 1)]
    for i in range(DRAWS):
        variation = (low + (high - low) * (i + 0.5) / DRAWS) / 100
        yield lengths(sequences, variation, Random(i))


def busiest(contexts: Sequence[float], heads: int, processors: int) -> float:
    """The same for given contexts, in any unit."""
    even = sum(contexts) * heads / processors
    part = MARGIN * even
    ends = [0.0] * processors
    for context in contexts:
        splits = min(ceil(context / part - 1e-9), MOST_SPLITS)
        for _ in range(heads * splits):
            heapreplace(ends, ends[0] + context / splits)
    return max(ends) / even


def lengths(count: int, variation: float, draw: Random) -> list[float]:
    """Log-normal contexts whose mean is 1 (or a little more) and whose coefficient of variation is given."""
    sigma = sqrt(log1p(variation**2))
    drawn = [draw.lognormvariate(0, sigma) for _ in range(count)]
    mean = fmean(drawn)
    deviation = sqrt(fmean((one - mean) ** 2 for one in drawn))
    return [max(SHORTEST, 1 + (one - mean) * variation / deviation) for one in drawn]


def spread_of(shape: BatchShape) -> tuple[int, int]:
    """Place in :data:`SPREADS` of a batch of decodes, and for how many steps it stays there.

    Contexts that all grow keep their variance, so relative to their mean it falls.
    """
    decodes, context = shape.decodes, shape.context_tokens
    variance = decodes * shape.context_squares - context * context  # times decodes squared
    if variance <= 0:
        return 0, 1 << 62
    for place in range(len(SPREADS) - 1, 0, -1):
        longest = isqrt(variance * 10_000 // SPREADS[place] ** 2)
        if context <= longest:
            return place, (longest - context) // decodes + 1
    return 0, 1 << 62
