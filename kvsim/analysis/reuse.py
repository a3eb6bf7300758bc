"""How a trace uses its blocks again: distances, times, popularity, working set, and who shares.

Pure functions of :class:`kvsim.analysis.accesses.Accesses`; none knows of a cache or a policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvsim.analysis.accesses import Accesses, compressed, previous, single_blocks
from kvsim.analysis.stack_distances import needed_capacity

if TYPE_CHECKING:
    from kvsim.tables import Floats, Ints


class Weighted(NamedTuple):
    """Values, ascending, and how many blocks have each."""

    values: Floats
    blocks: Ints

    def quantile(self, share: float) -> float:
        """The value that so many of the blocks do not exceed; NaN without any."""
        if not len(self.values):
            return float("nan")
        through = np.cumsum(self.blocks)
        return float(self.values[np.searchsorted(through, share * through[-1])])


class WorkingSet(NamedTuple):
    """Different blocks in use, at instants of a trace."""

    time: Floats
    """Seconds."""
    recent: Ints
    """Blocks used within the window before each instant."""
    ever: Ints
    """Blocks used since the start."""
    window: float
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Popularity:
    """How often blocks are used."""

    uses: Ints
    """Numbers of uses that occur, ascending."""
    blocks: Ints
    """How many blocks have each."""

    @property
    def used_once(self) -> float:
        """Share of the blocks that are never used again; NaN without blocks."""
        once = int(self.blocks[self.uses == 1].sum())
        return once / int(self.blocks.sum()) if len(self.blocks) else float("nan")

    @property
    def most(self) -> int:
        """Uses of the most popular block."""
        return int(self.uses[-1]) if len(self.uses) else 0

    def reuse_share(self, share: float) -> float:
        """Share of all reuses (uses but the first) that the most popular ``share`` of blocks have."""
        again = (self.uses - 1)[::-1] * self.blocks[::-1]
        if not again.sum():
            return float("nan")
        through = np.concatenate(([0], np.cumsum(self.blocks[::-1])))
        return float(
            np.interp(share * through[-1], through, np.concatenate(([0], np.cumsum(again))))
            / again.sum()
        )


class Sharing(NamedTuple):
    """Blocks that one group hit which another (or the same) had brought in, most shared first."""

    source: list[str]
    """Whose request used the block before."""
    user: list[str]
    """Whose request used it again."""
    blocks: list[int]
    within: int
    """Blocks that were used again by the group that had used them before."""
    across: int
    """Blocks that were used again by another group."""


def uniform(accesses: Accesses) -> Accesses:
    """The rows with as few runs as there can be, each of one size throughout."""
    try:
        return compressed(accesses)
    except ValueError:
        return compressed(single_blocks(accesses))


def reuse_distances(accesses: Accesses) -> Weighted:
    """Different blocks used between two uses of a block, the block itself included.

    It is the capacity that an LRU cache needs for the second to hit.
    """
    rows = uniform(accesses)
    again = previous(rows.run) >= 0
    return _weighted(needed_capacity(rows)[again].astype(np.float64), rows.blocks[again])


def reuse_times(accesses: Accesses) -> Weighted:
    """Seconds between the arrivals of two requests that use a block one after the other."""
    rows = uniform(accesses)
    before = previous(rows.run)
    again = np.flatnonzero(before >= 0)
    arrival = rows.arrival[rows.request]
    gaps = arrival[again] - arrival[before[again]]
    known = ~np.isnan(gaps)
    return _weighted(gaps[known], rows.blocks[again][known])


def _weighted(values: Floats, blocks: Ints) -> Weighted:
    distinct, group = np.unique(values, return_inverse=True)
    return Weighted(distinct, np.bincount(group, blocks, len(distinct)).astype(np.int64))


def popularity(accesses: Accesses) -> Popularity:
    """How many blocks are used how often."""
    rows = uniform(accesses)
    if not len(rows):
        return Popularity(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    count = np.bincount(rows.run)
    size = np.zeros(len(count), dtype=np.int64)
    size[rows.run] = rows.blocks
    uses, group = np.unique(count, return_inverse=True)
    blocks = np.bincount(group, size, len(uses)).astype(np.int64)
    return Popularity(uses[uses > 0], blocks[uses > 0])


def working_set(accesses: Accesses, window: float, points: int = 200) -> WorkingSet:
    """Different blocks used in the last ``window`` seconds, at ``points`` instants of the trace.

    Requests without an arrival of their own are left out.
    """
    rows = uniform(accesses)
    arrival = rows.arrival[rows.request]
    rows = rows.kept(~np.isnan(arrival))
    arrival = arrival[~np.isnan(arrival)]
    if not len(rows):
        nothing = np.zeros(0)
        return WorkingSet(nothing, nothing.astype(np.int64), nothing.astype(np.int64), window)
    order = np.argsort(arrival, kind="stable")
    run, blocks, arrival = rows.run[order], rows.blocks[order], arrival[order]
    before = previous(run)
    time = np.linspace(arrival[0], arrival[-1], points)
    first = np.concatenate(([0], np.cumsum(np.where(before < 0, blocks, 0))))
    ever = first[np.searchsorted(arrival, time, side="right")]
    # A use keeps its block in the set until the next use takes over, or the window has passed.
    leaves = np.full(len(run), np.inf)
    leaves[before[before >= 0]] = arrival[before >= 0]
    leaves = np.minimum(leaves, np.nextafter(arrival + window, np.inf))
    return WorkingSet(
        time, _counted(arrival, blocks, time) - _counted(leaves, blocks, time), ever, window
    )


def _counted(events: Floats, blocks: Ints, time: Floats) -> Ints:
    """Blocks of the events up to each instant."""
    order = np.argsort(events, kind="stable")
    sums = np.concatenate(([0], np.cumsum(blocks[order])))
    return sums[np.searchsorted(events[order], time, side="right")]


def sharing(accesses: Accesses, group: Ints, names: list[str], most: int = 100) -> Sharing:
    """Who uses what whom has used before: edges of a graph, the ``most`` heaviest.

    ``group``: of each request an index into ``names``, -1 for none (left out).
    """
    rows = uniform(accesses)
    before = previous(rows.run)
    again = np.flatnonzero(before >= 0)
    owner = group[rows.request] if len(rows) else np.zeros(0, dtype=np.int64)
    source, user, blocks = owner[before[again]], owner[again], rows.blocks[again]
    known = (source >= 0) & (user >= 0)
    source, user, blocks = source[known], user[known], blocks[known]
    pairs, index = np.unique(source * (len(names) + 1) + user, return_inverse=True)
    weight = np.bincount(index, blocks, len(pairs)).astype(np.int64)
    heaviest = np.argsort(-weight, kind="stable")[:most]
    return Sharing(
        [names[pair // (len(names) + 1)] for pair in pairs[heaviest].tolist()],
        [names[pair % (len(names) + 1)] for pair in pairs[heaviest].tolist()],
        weight[heaviest].tolist(),
        int(blocks[source == user].sum()),
        int(blocks[source != user].sum()),
    )
