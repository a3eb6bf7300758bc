"""A trace through caches of several capacities and policies, with the bounds on all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from kvsim.analysis.accesses import Accesses
from kvsim.caching.blocks import BlockTrace
from kvsim.caching.bounds import Optimum
from kvsim.caching.capacity import Capacity
from kvsim.caching.curve import Curve, Hits, lru_curve
from kvsim.memory.eviction import MakePolicy

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Row:
    """What one cache gave. Rates are ``None`` when nothing was asked for."""

    policy: str
    capacity: str
    """As it was written."""
    capacity_blocks: int | None
    """``None`` without limit."""
    capacity_tokens: int | None
    hit_tokens: int
    """Usable: prefix-contiguous, whole blocks."""
    token_hit_rate: float | None
    """Of all prompt tokens."""
    usable_hit_blocks: int
    usable_block_hit_rate: float | None
    """Of all blocks that were asked for."""
    any_hit_blocks: int
    """Cached, whatever precedes them."""
    any_block_hit_rate: float | None


@dataclass(frozen=True, slots=True)
class Bound:
    """What no cache of a capacity can exceed."""

    bound: str
    """``optimal-offline``: with knowledge of the future; ``infinite``: without a limit."""
    capacity: str
    capacity_blocks: int | None
    hit_tokens: int
    token_hit_rate: float | None
    hit_blocks: int
    block_hit_rate: float | None


@dataclass(frozen=True, slots=True)
class Study:
    """The hits of a trace by capacity and policy."""

    block_size: int
    requests: int
    prompt_tokens: int
    blocks: int
    """Blocks that all prompts ask for."""
    distinct_blocks: int
    rows: list[Row]
    bounds: list[Bound]

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


class Caches:
    """One trace, to be put through caches."""

    def __init__(self, accesses: Accesses) -> None:
        self.accesses = accesses
        self.prompt_tokens = int(accesses.prompt_tokens.sum())
        self.blocks = int(accesses.blocks.sum())
        self.distinct_blocks = distinct_blocks(accesses)
        self._curve: Curve | None = None
        self._trace: BlockTrace | None = None

    @property
    def curve(self) -> Curve:
        """The hits of LRU caches of every capacity."""
        if self._curve is None:
            self._curve = lru_curve(self.accesses)
        return self._curve

    @property
    def trace(self) -> BlockTrace:
        """Its blocks one by one."""
        if self._trace is None:
            self._trace = BlockTrace(self.accesses)
        return self._trace

    def hits(self, name: str, make: MakePolicy, capacity: float) -> Hits:
        """What a cache gives; LRU's come from one pass for all capacities."""
        if name == "lru":
            return self.curve.at(capacity)
        room = int(min(capacity, self.distinct_blocks))
        return self.trace.hits(make, room)

    def row(self, name: str, make: MakePolicy, capacity: Capacity) -> Row:
        """The same with its rates."""
        hits = self.hits(name, make, capacity.blocks)
        return Row(
            policy=name,
            capacity=capacity.text,
            capacity_blocks=whole(capacity.blocks),
            capacity_tokens=whole(capacity.blocks * self.accesses.block_size),
            hit_tokens=hits.usable_tokens,
            token_hit_rate=rate(hits.usable_tokens, self.prompt_tokens),
            usable_hit_blocks=hits.usable_blocks,
            usable_block_hit_rate=rate(hits.usable_blocks, self.blocks),
            any_hit_blocks=hits.blocks,
            any_block_hit_rate=rate(hits.blocks, self.blocks),
        )

    def bounds(self, capacities: Sequence[Capacity]) -> Iterator[Bound]:
        """What is possible at each capacity, and without any limit."""
        optimum = Optimum(self.accesses)
        for capacity in capacities:
            if (limit := whole(capacity.blocks)) is not None:
                found = optimum.most(limit)
                yield self._bound("optimal-offline", capacity.text, limit, found)
        ceiling = self.curve.at(float("inf"))
        most = (ceiling.usable_blocks, ceiling.usable_tokens)
        yield self._bound("infinite", "inf", None, most)

    def _bound(self, name: str, text: str, limit: int | None, most: tuple[int, int]) -> Bound:
        blocks, tokens = most
        rates = rate(tokens, self.prompt_tokens), rate(blocks, self.blocks)
        return Bound(name, text, limit, tokens, rates[0], blocks, rates[1])


def study(
    accesses: Accesses, capacities: Sequence[Capacity], policies: Mapping[str, MakePolicy]
) -> Study:
    """Put a trace through a cache of every capacity under every policy."""
    caches = Caches(accesses)
    return Study(
        accesses.block_size,
        accesses.requests,
        caches.prompt_tokens,
        caches.blocks,
        caches.distinct_blocks,
        [
            caches.row(name, make, capacity)
            for name, make in policies.items()
            for capacity in capacities
        ],
        list(caches.bounds(capacities)),
    )


def distinct_blocks(accesses: Accesses) -> int:
    """Different blocks that the trace asks for: what an unlimited cache ends with."""
    import numpy as np

    longest = np.zeros(int(accesses.run.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(longest, accesses.run, accesses.blocks)
    return int(longest.sum())


def rate(part: int, whole: int) -> float | None:
    """A share; ``None`` of nothing."""
    return part / whole if whole else None


def whole(amount: float) -> int | None:
    """A number of blocks or tokens; ``None`` for no limit."""
    return None if amount == float("inf") else int(amount)
