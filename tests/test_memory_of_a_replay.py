"""A replay's memory does not grow with the trace: nothing lives on after its use."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kvsim.core import Request
from kvsim.memory import ALLOCATORS
from kvsim.scheduling import SCHEDULERS
from tests.contracts.test_allocators import build
from tests.oracles.costs import Crossing
from tests.oracles.replay import Log, replay

COST = Crossing(base=10**9, per_context=0, per_token=10**6, per_pair=0)


class Forgetful(Log):
    """Keeps nothing of a finished sequence."""

    def finished(self, sequence: object, replica: int) -> None:
        pass


def requests(count: int) -> Iterator[Request]:
    """Prompts that share prefixes and, every seventh, repeat one whole."""
    return (
        Request(row, row * 0.002, 40, 20, [row % 3, row % 7, 100 + row // 7, row, row], 8)
        for row in range(count)
    )


def live_after(allocator: str, scheduler: str, count: int) -> tuple[int, int]:
    """Tracked objects that a replay leaves in its pool, and cyclic garbage it left behind."""
    memory = build(allocator, 600, page=4)
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        replay(requests(count), SCHEDULERS[scheduler](memory), memory, COST, log=Forgetful())
        left = len(gc.get_objects()) - before
        return left, gc.collect()
    finally:
        gc.enable()


@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
@pytest.mark.parametrize("allocator", sorted(ALLOCATORS))
def test_ten_times_the_requests_leave_no_more_behind(allocator: str, scheduler: str) -> None:
    few, many = live_after(allocator, scheduler, 200), live_after(allocator, scheduler, 2_000)
    assert many[0] < few[0] + 300
    assert many[1] < few[1] + 100
