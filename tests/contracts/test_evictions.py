"""What every eviction policy promises, in a cache of single blocks and in both prefix caches.

1  What is held, or others depend on, is never evicted; nothing is lost or counted twice.
2  A leap evicts what its iterations would have evicted.
3  In a cache of blocks every access is a hit or takes a place: no more blocks than there is room for.
4  A fast way through single blocks decides as the policy's queue does.
5  No policy exceeds the bounds, and no block hits usefully behind one that is gone.
6  The same accesses give the same hits again.
"""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.caching import accesses_of, lru_curve
from kvsim.caching.blocks import BlockTrace
from kvsim.caching.bounds import Optimum
from kvsim.core import Request
from kvsim.memory.eviction import Entry, MakePolicy, Use, queue_of
from kvsim.memory.eviction.policies import EVICTIONS
from kvsim.memory.eviction.scanning import RunScanning, Scanning
from tests.contracts.test_allocators import History
from tests.oracles.workloads import request_lists

EVERY = pytest.mark.parametrize("name", sorted(EVICTIONS))
FAST = {n for n, cls in EVICTIONS.items() if hasattr(cls, "scan") or hasattr(cls, "scan_runs")}
SCANNING = sorted(FAST - {"arc"})
"""ARC's queue, which makes room before it knows for what, is not exactly the paper's; its scan is."""


def maker(name: str) -> MakePolicy:
    cls = EVICTIONS[name]
    if "capacity" in inspect.signature(cls).parameters:
        return lambda capacity: cls(capacity)
    return lambda capacity: cls()


def timed(requests: list[Request]) -> list[Request]:
    """The same, minutes apart, so that ages matter."""
    return [r._replace(arrival=60.0 * (r.arrival or 0)) for r in requests]


@EVERY
@pytest.mark.parametrize("allocator", ["paged", "radix"])
@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 2**32), operations=st.integers(20, 80))
def test_prefix_caches_keep_their_promises_under_any_policy(
    allocator: str, name: str, seed: int, operations: int
) -> None:
    History(allocator, seed, maker(name)).live(
        operations
    )  # 1, 2: its servers check after each step


class Counting:
    """A cache of blocks in the plainest way, over the seam alone."""

    def __init__(self, make: MakePolicy, capacity: int, size: int) -> None:
        self.queue = queue_of(make(capacity * size))
        self.capacity, self.size = capacity, size
        self.kept: dict[int, Entry] = {}

    def access(self, block: int, depth: int, at: int) -> bool:
        use = Use(at, 0, 0)
        entry = self.kept.get(block)
        if entry is not None:
            entry.touch(use)
            self.queue.hit(entry)
            return True
        if len(self.kept) == self.capacity:
            victim = self.queue.victim()
            assert victim is not None
            assert self.kept.pop(victim.key) is victim  # type: ignore[arg-type]  # 1
            assert victim not in self.queue
        entry = self.kept[block] = Entry(depth * self.size, (depth + 1) * self.size, block, use)
        self.queue.insert(entry)
        self.queue.offer(entry)
        return False


@EVERY
@settings(deadline=None, max_examples=30)
@given(request_lists(40, 2), st.integers(1, 20))
def test_a_cache_of_blocks_is_full_and_never_fuller(
    name: str, requests: list[Request], capacity: int
) -> None:
    trace = BlockTrace(accesses_of(requests, 2))
    blocks = trace.blocks
    cache = Counting(maker(name), capacity, 2)
    hits = 0
    for at, block in enumerate(blocks.accesses):
        hits += cache.access(block, blocks.depth[block], at)
        assert len(cache.kept) <= capacity  # 3
        assert all(entry in cache.queue for entry in cache.kept.values())
    assert len(cache.kept) == min(capacity, blocks.distinct)
    if capacity >= blocks.distinct:  # what is roomy enough decides nothing
        assert trace.hits(maker(name), capacity).blocks == hits


@pytest.mark.parametrize("name", SCANNING)
@settings(deadline=None, max_examples=60)
@given(request_lists(24, 2), st.integers(1, 25))
def test_a_fast_scan_decides_as_the_queue_does(
    name: str, requests: list[Request], capacity: int
) -> None:
    trace = BlockTrace(accesses_of(requests, 1))
    policy = maker(name)(capacity)
    cache = Counting(maker(name), capacity, 1)
    depth = trace.blocks.depth
    slow = [cache.access(b, depth[b], at) for at, b in enumerate(trace.blocks.accesses)]
    if isinstance(policy, RunScanning):
        rows = policy.scan_runs(trace.runs, capacity)
        fast = [hit for hit, size in zip(rows, trace.runs.sizes, strict=True) for _ in range(size)]
    else:
        assert isinstance(policy, Scanning)
        fast = list(policy.scan(trace.blocks, capacity))
    assert fast == slow  # 4


@EVERY
@settings(deadline=None, max_examples=30)
@given(request_lists(40, 2).map(timed), st.integers(1, 20))
def test_no_policy_exceeds_the_bounds(name: str, requests: list[Request], capacity: int) -> None:
    accesses = accesses_of(requests, 2)
    trace = BlockTrace(accesses)
    hits = trace.hits(maker(name), capacity)
    most_blocks, most_tokens = Optimum(accesses).most(capacity)
    ceiling = lru_curve(accesses).at(float("inf"))
    assert hits.usable_blocks <= hits.blocks <= most_blocks <= ceiling.blocks  # 5
    assert hits.usable_tokens <= most_tokens <= ceiling.usable_tokens
    assert trace.hits(maker(name), capacity) == hits  # 6


@settings(deadline=None, max_examples=30)
@given(request_lists(40, 2), st.integers(1, 20))
def test_what_a_small_lru_cache_holds_a_larger_one_holds(
    requests: list[Request], capacity: int
) -> None:
    blocks = BlockTrace(accesses_of(requests, 2)).blocks
    caches = [Counting(maker("lru"), size, 2) for size in (capacity, capacity + 1)]
    for at, block in enumerate(blocks.accesses):
        for cache in caches:
            cache.access(block, blocks.depth[block], at)
        assert caches[0].kept.keys() <= caches[1].kept.keys()


@settings(deadline=None, max_examples=30)
@given(request_lists(40, 2), st.integers(1, 20))
def test_the_curve_is_what_the_queue_of_lru_gives(requests: list[Request], capacity: int) -> None:
    accesses = accesses_of(requests, 2)
    hits = BlockTrace(accesses).hits(maker("lru"), capacity)
    assert lru_curve(accesses).at(capacity) == hits
