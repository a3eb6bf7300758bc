"""Stack distances: the least capacity at which an LRU cache hits, for all accesses in one pass.

Source: Mattson et al., Evaluation techniques for storage hierarchies (IBM Systems Journal 1970).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvsim.analysis.accesses import Accesses, previous

if TYPE_CHECKING:
    from kvsim.tables import Ints

NEVER = np.iinfo(np.int64).max >> 8
"""Needed capacity of a first access: more than there is."""


def needed_capacity(accesses: Accesses) -> Ints:
    """Blocks that an LRU cache must hold for each row to hit, ``NEVER`` for a first access.

    Blocks are accessed one after the other and a miss is inserted. All blocks of a row hit from the
    same capacity on: the different blocks accessed since, and its own. A run must fill as many
    blocks in every request (:func:`kvsim.analysis.accesses.single_blocks` makes it so).
    """
    before, sizes = previous(accesses.run), accesses.blocks
    again = before >= 0
    if not again.any():
        return np.full(len(sizes), NEVER)
    through = np.cumsum(sizes)
    earlier = _weight_of_lesser_before(_ranks(before), sizes)
    between = earlier - through[np.where(again, before, 0)]
    return np.where(again, between + sizes, NEVER)


def _ranks(before: Ints) -> Ints:
    """Order of the rows by their previous access, first accesses in front: a permutation."""
    again = before >= 0
    is_previous = np.zeros(len(before), dtype=np.int64)
    is_previous[before[again]] = 1
    firsts = len(before) - int(again.sum())
    return np.where(
        again,
        firsts + np.cumsum(is_previous)[np.where(again, before, 0)] - 1,
        np.cumsum(~again) - 1,
    )


def _weight_of_lesser_before(ranks: Ints, weights: Ints) -> Ints:
    """For each row the weights, summed, of the rows before it that have a lesser rank.

    ``ranks`` is a permutation. Radix partition from the highest bit down: at each bit the rows that
    agree above it stand together, in their order, and those with the bit set come after the lesser
    ones of their group, whose ranks have it not.
    """
    rank, weight, origin = ranks, weights, np.arange(len(ranks))
    total = np.zeros(len(ranks), dtype=np.int64)
    for bit in reversed(range(max(1, (len(ranks) - 1).bit_length()))):
        upper = (rank >> bit) & 1 == 1
        group = (rank >> (bit + 1)) << (bit + 1)
        lesser = np.concatenate(([0], np.cumsum(np.where(upper, 0, weight))))
        total += np.where(upper, lesser[:-1] - lesser[group], 0)
        zeros = np.concatenate(([0], np.cumsum(~upper)))
        before = zeros[:-1] - zeros[group]
        at = np.arange(len(rank))
        place = np.where(upper, at + (1 << bit) - before, group + before)
        moved = np.empty_like(place)
        moved[place] = at
        rank, weight, origin, total = rank[moved], weight[moved], origin[moved], total[moved]
    found = np.empty_like(total)
    found[origin] = total
    return found
