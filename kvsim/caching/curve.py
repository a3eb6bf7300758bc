"""Hits by capacity: what an LRU prefix cache of every size would give, from one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvsim.analysis.accesses import Accesses
from kvsim.analysis.reuse import uniform
from kvsim.analysis.stack_distances import NEVER, needed_capacity

if TYPE_CHECKING:
    from kvsim.tables import Ints


@dataclass(frozen=True, slots=True)
class Hits:
    """What a cache gave to all requests together."""

    blocks: int
    """Blocks that were cached when they were asked for, whatever preceded them: any-block hits."""
    usable_blocks: int
    """Those among them that all blocks before them in the prompt hit too: prefix-contiguous."""
    usable_tokens: int
    """Prompt tokens that need not be computed."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The hits of caches of every capacity: a step at each capacity that gives more."""

    capacity: Ints
    """Blocks, ascending; at least so many, and fewer than the next step's, give the step's hits."""
    blocks: Ints
    """Any-block hits of each step."""
    usable_blocks: Ints
    usable_tokens: Ints

    def at(self, capacity: float) -> Hits:
        """The hits of a cache of ``capacity`` blocks; ``math.inf`` for all there could be."""
        step = int(np.searchsorted(self.capacity, capacity, side="right")) - 1
        if step < 0:
            return Hits(0, 0, 0)
        return Hits(
            int(self.blocks[step]), int(self.usable_blocks[step]), int(self.usable_tokens[step])
        )


def lru_curve(accesses: Accesses) -> Curve:
    """The hits of LRU caches of every capacity.

    Blocks are accessed one after the other, from the start of each prompt, and a miss is inserted.
    """
    rows = uniform(accesses)
    need = needed_capacity(rows)
    contiguous = longest_so_far(need, rows.first)
    steps = np.unique(np.concatenate((need, contiguous)))
    steps = steps[steps < NEVER]
    return Curve(
        steps,
        _reached(steps, need, rows.blocks),
        _reached(steps, contiguous, rows.blocks),
        _reached(steps, contiguous, rows.tokens),
    )


def longest_so_far(need: Ints, first: Ints) -> Ints:
    """The largest need of each row and of those before it in its request."""
    request = np.repeat(np.arange(len(first) - 1), np.diff(first))
    shift = request * (int(need[need < NEVER].max(initial=0)) + 2)
    ceiling = shift + np.minimum(need, int(need[need < NEVER].max(initial=0)) + 1)
    running = np.maximum.accumulate(ceiling) - shift
    return np.where(running > need[need < NEVER].max(initial=0), NEVER, running)


def _reached(steps: Ints, need: Ints, weight: Ints) -> Ints:
    """The weight of the rows whose need is at most each step."""
    order = np.argsort(need, kind="stable")
    sums = np.concatenate(([0], np.cumsum(weight[order])))
    return sums[np.searchsorted(need[order], steps, side="right")]
