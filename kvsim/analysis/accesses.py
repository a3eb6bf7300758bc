"""What the requests of a trace ask of a prefix cache, as columns: the table that cache analysis reads.

A *run* is a piece of prompt that one hash id of the trace names, together with all that precedes it:
the same id after another prefix is another run. A run fills a whole number of blocks, all of which
are accessed together, in order.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from kvsim.tables import Flags, Floats, Ints


@dataclass(frozen=True, slots=True)
class Accesses:
    """A row for each run that a request asks for, request by request, each from its start."""

    block_size: int
    """Tokens in a block."""
    run: Ints
    """Which run: numbers from 0."""
    blocks: Ints
    """Blocks that it fills in this request; those of its row follow those of the row before."""
    tokens: Ints
    """Prompt tokens that the request need not compute if these blocks are cached."""
    first: Ints
    """Row at which each request begins, and at the end the number of rows."""
    prompt_tokens: Ints
    """Of each request, all of its prompt."""
    arrival: Floats
    """Of each request, seconds; NaN for a turn that waits for the one before it."""
    session: Ints
    """Of each request: index into ``sessions``, -1 without one."""
    sessions: Seq[str]
    tenant: Ints
    """Of each request: index into ``tenants``, -1 without one."""
    tenants: Seq[str]

    def __len__(self) -> int:
        return len(self.run)

    @property
    def requests(self) -> int:
        """How many requests there are."""
        return len(self.prompt_tokens)

    @property
    def request(self) -> Ints:
        """Which request each row belongs to."""
        return np.repeat(np.arange(self.requests), np.diff(self.first))

    @property
    def position(self) -> Ints:
        """How many blocks of its request precede each row."""
        ends = np.cumsum(self.blocks)
        starts = np.concatenate(([0], ends))[self.first[:-1]]
        return ends - self.blocks - starts[self.request]

    def kept(self, rows: Flags) -> Accesses:
        """Some of the rows; the requests stay, with or without rows."""
        first = np.concatenate(([0], np.cumsum(rows)))[self.first]
        return replace(
            self,
            run=self.run[rows],
            blocks=self.blocks[rows],
            tokens=self.tokens[rows],
            first=first,
        )


def previous(run: Ints) -> Ints:
    """For each row the latest one before it with the same run; -1 for a first access."""
    order = np.argsort(run, kind="stable")
    before = np.full(len(run), -1, dtype=np.int64)
    ordered = run[order]
    again = ordered[1:] == ordered[:-1]
    before[order[1:][again]] = order[:-1][again]
    return before


def single_blocks(accesses: Accesses) -> Accesses:
    """The same with one row for each block, a run for each different block."""
    rows = np.repeat(np.arange(len(accesses)), accesses.blocks)
    ends = np.cumsum(accesses.blocks)
    offset = np.arange(len(rows)) - (ends - accesses.blocks)[rows]
    longest = np.zeros(int(accesses.run.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(longest, accesses.run, accesses.blocks)
    base = np.cumsum(longest) - longest
    size = accesses.block_size
    tokens = np.clip(accesses.tokens[rows] - offset * size, 0, size)
    return replace(
        accesses,
        run=base[accesses.run[rows]] + offset,
        blocks=np.ones(len(rows), dtype=np.int64),
        tokens=tokens,
        first=np.concatenate(([0], ends))[accesses.first],
    )


def compressed(accesses: Accesses) -> Accesses:
    """The same with runs that are always accessed together, one after the other, as one run.

    Raises ``ValueError`` if a run fills fewer blocks in one request than in another.
    """
    run, blocks = accesses.run, accesses.blocks
    if len(run) == 0:
        return accesses
    size = np.zeros(int(run.max()) + 1, dtype=np.int64)
    size[run] = blocks
    if (size[run] != blocks).any():
        raise ValueError("a run fills fewer blocks in one request than in another")
    count = np.bincount(run)
    starts = np.ones(len(run), dtype=np.bool_)
    starts[1:] = count[run[1:]] != count[run[:-1]]
    starts[accesses.first[:-1][accesses.first[:-1] < len(run)]] = True
    heads = np.flatnonzero(starts)
    return replace(
        accesses,
        run=run[heads],
        blocks=np.add.reduceat(blocks, heads),
        tokens=np.add.reduceat(accesses.tokens, heads),
        first=np.concatenate(([0], np.cumsum(starts)))[accesses.first],
    )
