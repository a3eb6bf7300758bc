"""How long requests wait for room is the same whether iterations are leapt over or not."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsim.core import Leap, Request
from kvsim.memory import ALLOCATORS
from kvsim.protocols import Allocator
from kvsim.scheduling import SCHEDULERS
from tests.contracts.test_allocators import build
from tests.oracles.costs import Crossing
from tests.oracles.replay import Log, replay
from tests.oracles.workloads import request_lists
from tests.test_exact_replay import COSTS


class Charged(Log):
    """Adds up the time of the iterations that leave requests waiting, as the verdict does."""

    def __init__(self) -> None:
        super().__init__()
        self.charged: Counter[bool] = Counter()

    def leap(self, leap: Leap, allocator: Allocator) -> None:
        super().leap(leap, allocator)
        self.charged[leap.waiting > 0] += leap.end - leap.start


@pytest.mark.parametrize("scheduler", sorted(SCHEDULERS))
@pytest.mark.parametrize("allocator", sorted(ALLOCATORS))
@settings(max_examples=40, deadline=None)
@given(
    requests=request_lists(40, 30),
    slots=st.integers(16, 160),
    seats=st.sampled_from([1, 2, 8]),
    cost=COSTS,
)
def test_a_leap_charges_waiting_like_its_iterations(
    allocator: str, scheduler: str, requests: list[Request], slots: int, seats: int, cost: Crossing
) -> None:
    charged = []
    for leaps in (True, False):
        memory = build(allocator, slots, 2)
        engine = SCHEDULERS[scheduler](memory, max_num_seqs=seats, leaps=leaps)  # type: ignore[call-arg]
        log = Charged()
        replay(requests, engine, memory, cost, log=log)
        charged.append(log.charged)
    assert charged[0] == charged[1]
