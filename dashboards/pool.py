"""Small replays that are watched: where everything lay in the pool of each allocator."""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvsim.analysis.prefix_tree import Asked, Branch, prefix_tree
from kvsim.compose import deploy, trace_options
from kvsim.core import Request, Usage, packed
from kvsim.memory.regions import STATES, regions
from kvsim.protocols import Allocator
from kvsim.scenario import Scenario
from kvsim.simulation.cluster import simulate
from kvsim.simulation.snapshots import Ended, Snapshot, Snapshots
from kvsim.workload import open_trace

BLOCK = 16
"""Slots of a block, and of a cell of the picture."""
MAPPED: dict[str, dict[str, object]] = {
    "contiguous": {"name": "kvsim.memory.mapped:MappedContiguous"},
    "buddy": {"name": "kvsim.memory.mapped:MappedBuddy"},
    "paged": {"name": "kvsim.memory.mapped:MappedPaged"},
    "radix": {"name": "kvsim.memory.mapped:MappedRadix", "page_size": BLOCK},
}
LONGEST = 3
"""Longest request, in sixteenths of the pool: no power of two, so that rounding shows."""
NOBODY = -1


class Workload(NamedTuple):
    """What is replayed."""

    trace: str
    """Path."""
    requests: int
    speedup: float
    blocks: int
    reservation: str
    """Of contiguous and buddy."""


class Frame(NamedTuple):
    """The pool at one instant, cell by cell."""

    states: NDArray[np.uint8]
    """0 for a free cell, else its place in :data:`kvsim.memory.regions.STATES`, from 1."""
    owners: NDArray[np.int32]
    """Rows of the requests; :data:`NOBODY` for what is not one request's own."""
    usage: Usage


class Film(NamedTuple):
    """A pool over time."""

    allocator: str
    frames: list[Snapshot[Frame]]
    ended: list[Ended]

    @property
    def end(self) -> float:
        """When the last request had its last token, seconds."""
        return max((ended.time for ended in self.ended), default=0.0)

    def at(self, time: float) -> Snapshot[Frame] | None:
        """The latest frame at a time; None before the first."""
        place = bisect_right([frame.time for frame in self.frames], time)
        return self.frames[place - 1] if place else None


def films(workload: Workload) -> dict[str, Film]:
    """The workload in the pool of every allocator."""
    return {name: film(name, workload) for name in MAPPED}


def film(allocator: str, workload: Workload) -> Film:
    """The workload in the pool of one allocator."""
    scenario = Scenario().changed(
        gpu="l40s",
        allocator=MAPPED[allocator],
        reservation=workload.reservation,
        num_gpu_blocks_override=workload.blocks,
        max_model_len=LONGEST * workload.blocks * BLOCK // 16,
        max_num_seqs=64,
        workload={"limit": workload.requests, "speedup": workload.speedup},
    )
    deployed = deploy(scenario)
    snapshots = Snapshots(look)
    trace = open_trace(workload.trace, trace_options(scenario))
    simulate(trace, deployed.replicas, deployed.router, snapshots)
    return Film(allocator, snapshots.taken, snapshots.ended)


def look(allocator: Allocator) -> Frame:
    """The pool now; a cell is in the state of most of its slots."""
    total = getattr(allocator, "num_blocks", None)
    slots = total * BLOCK if total else allocator.total_slots
    codes = np.zeros(-(-slots // BLOCK) * BLOCK, dtype=np.uint8)
    owners = np.full(len(codes), NOBODY, dtype=np.int32)
    for start, end, state, owner in regions(allocator):
        codes[start:end] = STATES.index(state) + 1
        owners[start:end] = NOBODY if owner is None else owner
    cells = codes.reshape(-1, BLOCK)
    counts = np.stack([(cells == code).sum(axis=1) for code in range(len(STATES) + 1)])
    return Frame(
        counts.argmax(axis=0).astype(np.uint8), owners.reshape(-1, BLOCK)[:, 0], allocator.usage()
    )


def shared_prefixes(workload: Workload, ended: list[Ended], until: float) -> list[Branch]:
    """The prefixes of the requests that had ended by a time, and what was found of them."""
    trace = open_trace(workload.trace)
    requests: dict[int, Request] = {r.row: r for r in islice(trace, workload.requests)}
    asked = []
    for time, row, cached in ended:
        request = requests.get(row)
        if time <= until and request is not None:
            asked.append(Asked(packed(request.hash_ids), request.hash_block, cached))
    return prefix_tree(asked)
