"""What a prefix cache makes of a trace: hits by capacity, the bounds on them, and who shares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvsim.analysis.accesses import Accesses
from kvsim.analysis.reuse import Sharing, Weighted, reuse_distances, reuse_times, sharing
from kvsim.caching import accesses_of
from kvsim.caching.bounds import Optimum
from kvsim.caching.study import Caches, distinct_blocks
from kvsim.errors import ConfigError
from kvsim.memory.eviction import MakePolicy
from kvsim.memory.eviction.policies import EVICTIONS
from kvsim.registry import blueprint
from kvsim.workload import TraceOptions, open_trace

if TYPE_CHECKING:
    from kvsim.tables import Ints

POINTS = 14
"""Capacities at which policies are tried; LRU's curve has all of them."""
MOST_GROUPS = 24


class Curves(NamedTuple):
    """Shares of all prompt tokens that are found, by the blocks that a cache holds."""

    block_size: int
    requests: int
    prompt_tokens: int
    distinct: int
    """Blocks that the trace has."""
    capacities: list[int]
    policies: dict[str, list[float]]
    optimum: list[float]
    """What no cache of a capacity can exceed, whatever its policy: a bound, not a policy."""
    ceiling: float
    """What a cache without limit gives."""


class Reuse(NamedTuple):
    """How blocks are used again."""

    distances: Weighted
    times: Weighted
    shared: Sharing
    grouped_by_session: bool


def read_accesses(trace: Path, limit: int) -> Accesses:
    """What the trace asks of a cache; ConfigError if its prompts have no content to share."""
    options = TraceOptions(limit=limit or None)
    found = accesses_of(open_trace(trace, options))
    if not len(found):
        raise ConfigError(f"{trace.name}: no prompt is described by hash ids, so none can be found")
    return found


def curves(accesses: Accesses, policies: tuple[str, ...]) -> Curves:
    """Every policy at capacities from a hundredth of the trace's blocks to all of them."""
    caches, optimum = Caches(accesses), Optimum(accesses)
    total, distinct = max(1, caches.prompt_tokens), distinct_blocks(accesses)
    grid = np.geomspace(max(1, distinct // 200), max(2, distinct), POINTS)
    capacities = sorted({int(blocks) for blocks in grid})
    found = {
        name: [
            caches.hits(name, maker(name), blocks).usable_tokens / total for blocks in capacities
        ]
        for name in policies
    }
    return Curves(
        accesses.block_size,
        accesses.requests,
        caches.prompt_tokens,
        distinct,
        capacities,
        found,
        [optimum.most(blocks)[1] / total for blocks in capacities],
        caches.curve.at(float("inf")).usable_tokens / total,
    )


def maker(name: str) -> MakePolicy:
    """Makes the policy of this name, with its defaults."""
    plan = blueprint(f"eviction {name}", EVICTIONS[name], {}, {})
    return lambda capacity: plan.build(capacity=capacity)


def reuse_of(accesses: Accesses) -> Reuse:
    """Distances, times and sharing; by session, or by what prompts begin with where there is none."""
    by_session = bool(len(accesses.sessions))
    if by_session:
        group, names = accesses.session, list(accesses.sessions)
    else:
        group, names = beginnings(accesses)
    shared = sharing(accesses, group, names, most=400)
    return Reuse(reuse_distances(accesses), reuse_times(accesses), shared, by_session)


def beginnings(accesses: Accesses) -> tuple[Ints, list[str]]:
    """The requests by their first run of blocks, the most common beginnings first."""
    group = np.full(accesses.requests, -1, dtype=np.int64)
    starts = accesses.first[:-1]
    asks = np.diff(accesses.first) > 0
    first = accesses.run[starts[asks]]
    values, index, counts = np.unique(first, return_inverse=True, return_counts=True)
    rank = np.empty(len(values), dtype=np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(values))
    group[asks] = rank[index]
    return group, [f"#{place + 1}" for place in range(len(values))]


def matrix(shared: Sharing) -> tuple[list[str], np.ndarray]:
    """The groups that share most, and the blocks that each (row) gave to each (column)."""
    weight: dict[str, int] = {}
    pairs = list(zip(shared.source, shared.user, shared.blocks, strict=True))
    for source, user, blocks in pairs:
        for name in (source, user):
            weight[name] = weight.get(name, 0) + blocks
    names = sorted(weight, key=lambda name: -weight[name])[:MOST_GROUPS]
    place = {name: i for i, name in enumerate(names)}
    grid = np.zeros((len(names), len(names)))
    for source, user, blocks in pairs:
        if source in place and user in place:
            grid[place[source], place[user]] += blocks
    return names, grid
