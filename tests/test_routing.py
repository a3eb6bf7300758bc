"""Routers: what they promise whatever the load."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.core import Request
from kvsim.registry import blueprint
from kvsim.routing import ROUTERS, LeastLoaded, PowerOfTwo, Random, RoundRobin

REQUEST = Request(0, 0.0, 10, 10)


class Queue(NamedTuple):
    queue_length: int


def queues(*lengths: int) -> list[Queue]:
    return [Queue(length) for length in lengths]


def router(name: str, seed: int = 0):
    return blueprint("router", ROUTERS[name], {}, {}).build(rng=np.random.default_rng(seed))


@pytest.mark.parametrize("name", ROUTERS)
@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=9), seed=st.integers(0, 99))
def test_every_router_chooses_an_existing_replica_and_repeats_itself(name, lengths, seed):
    one, other = router(name, seed), router(name, seed)
    for _ in range(5):
        chosen = one.route(REQUEST, queues(*lengths), 0)
        assert 0 <= chosen < len(lengths)
        assert chosen == other.route(REQUEST, queues(*lengths), 0)


def test_round_robin_takes_the_replicas_in_turn():
    turn = RoundRobin()
    assert [turn.route(REQUEST, queues(9, 0, 0), 0) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_least_loaded_prefers_the_first_of_equal_queues():
    assert LeastLoaded().route(REQUEST, queues(2, 1, 1, 3), 0) == 1


def test_random_reaches_all_replicas_about_equally():
    drawn = Random(np.random.default_rng(1))
    counts = Counter(drawn.route(REQUEST, queues(0, 5, 0, 5), 0) for _ in range(4000))
    assert all(900 < counts[index] < 1100 for index in range(4))


def test_two_choices_never_take_the_single_longest_queue():
    two = PowerOfTwo(np.random.default_rng(1))
    chosen = {two.route(REQUEST, queues(1, 7, 1, 1), 0) for _ in range(200)}
    assert chosen == {0, 2, 3}


def test_two_choices_prefer_the_lower_index_of_equal_queues():
    two = PowerOfTwo(np.random.default_rng(1))
    counts = Counter(two.route(REQUEST, queues(0, 0), 0) for _ in range(50))
    assert counts == {0: 50}
