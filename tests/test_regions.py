"""The pool as a picture: every slot is where the books of the allocator say it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from kvsim.compose import deploy, trace_options
from kvsim.core import Usage
from kvsim.memory.mapped import MAPPED
from kvsim.memory.regions import Region, regions
from kvsim.protocols import Allocator
from kvsim.scenario import Scenario
from kvsim.simulation.cluster import simulate
from kvsim.simulation.snapshots import MOST_SNAPSHOTS, Snapshots
from kvsim.workload import open_trace

Seen = tuple[Usage, list[Region]]


def look(allocator: Allocator) -> Seen:
    return allocator.usage(), list(regions(allocator))


def replayed(allocator: str, scheduler: str = "chunked", **settings: object) -> Snapshots[Seen]:
    mapped: dict[str, object] = {"name": f"kvsim.memory.mapped:{MAPPED[allocator].__name__}"}
    if allocator == "radix":
        mapped["page_size"] = 16
    given: dict[str, object] = {
        "allocator": mapped,
        "scheduler": scheduler,
        "num_gpu_blocks_override": 1_024,
        "max_model_len": 4_096,
        "max_num_seqs": 32,
        "workload": {"limit": 60, "speedup": 40.0},
    }
    scenario = Scenario().changed(**given | settings)
    deployed, snapshots = deploy(scenario), Snapshots(look)
    trace = open_trace("traces/chat.jsonl.gz", trace_options(scenario))
    simulate(trace, deployed.replicas, deployed.router, snapshots)
    return snapshots


def slots_by_state(seen: list[Region]) -> Iterator[tuple[str, int]]:
    for region in set(seen):  # what is shared is seen from every sequence that shares it
        yield region.state, region.end - region.start


@pytest.mark.parametrize("allocator", MAPPED)
@pytest.mark.parametrize("reservation", ["max", "pow2"])
def test_regions_never_overlap_and_sum_to_the_usage(allocator: str, reservation: str) -> None:
    snapshots = replayed(allocator, reservation=reservation)
    assert len(snapshots.ended) > 50
    for snapshot in snapshots.taken:
        usage, seen = snapshot.seen
        at = 0
        for region in sorted(set(seen)):
            assert at <= region.start < region.end
            at = region.end
        assert at <= 1_024 * 16
        sums: Counter[str] = Counter()
        for state, slots in slots_by_state(seen):
            sums[state] += slots
        assert sums["used"] + sums["shared"] == usage.used
        assert (sums["internal"], sums["reserved"]) == (usage.internal, usage.reserved)
        assert (sums["external"], sums["cached"]) == (usage.external, usage.cached)


def states(snapshots: Snapshots[Seen]) -> set[str]:
    return {region.state for snapshot in snapshots.taken for region in snapshot.seen[1]}


def test_a_picture_shows_what_each_allocator_is_known_for() -> None:
    assert states(replayed("contiguous")) == {"used", "reserved", "internal"}
    assert "external" in states(replayed("contiguous", reservation="pow2"))
    assert "external" in states(replayed("buddy", max_model_len=3_000))
    assert states(replayed("paged")) == {"used", "internal", "shared", "cached"}
    assert states(replayed("radix")) == {"used", "internal", "shared", "cached"}


def test_snapshots_stay_few_and_cover_the_run() -> None:
    snapshots = replayed("paged", "continuous")
    assert len(snapshots.taken) <= MOST_SNAPSHOTS
    times = [snapshot.time for snapshot in snapshots.taken]
    assert times == sorted(times)
    assert times[-1] > 0.9 * max(ended.time for ended in snapshots.ended)
