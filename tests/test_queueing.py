"""The engine as a queue whose waits are known in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from math import factorial

import numpy as np
import pytest

from kvsim.core import PICOSECONDS, Leap, Request
from kvsim.memory.paged import Paged
from kvsim.protocols import Allocator
from kvsim.routing import Random, RoundRobin
from kvsim.scheduling.chunked import Chunked
from kvsim.simulation.cluster import simulate
from kvsim.simulation.replica import Replica
from tests.oracles.replay import Log

STEP = PICOSECONDS // 1000


def requests(rate: float, outputs: np.ndarray, seed: int) -> Iterator[Request]:
    """Poisson arrivals of one-token prompts; an answer of n tokens takes n steps of 1 ms."""
    gaps = np.random.default_rng(seed).exponential(1 / rate, len(outputs))
    for row, (at, output) in enumerate(zip(gaps.cumsum(), outputs, strict=True)):
        yield Request(row, float(at), 1, int(output))


def mean_wait(arriving: Iterator[Request], *, seats: int = 1, replicas: int = 1) -> float:
    """Mean seconds between arrival and admission."""
    log = Log()
    engines = []
    for index in range(replicas):
        pool = Paged(1 << 20)
        scheduler = Chunked(pool, max_num_seqs=seats)
        engines.append(Replica(index, scheduler, pool, FixedSteps()))
    simulate(arriving, engines, Random(np.random.default_rng(1)), log)
    waits = [s.scheduled - s.arrival for s in log.sequences if s.scheduled is not None]
    return float(np.mean(waits)) / PICOSECONDS


class FixedSteps:
    """Every iteration takes one step; O(1), unlike the summing test costs."""

    label = "test"

    def time(self, shape: object, steps: int = 1) -> int:
        return STEP * steps


def answers(mean: float, count: int, seed: int) -> np.ndarray:
    """Geometric lengths: the exponential distribution in whole tokens."""
    return np.random.default_rng(seed).geometric(1 / mean, count)


def erlang_wait(rate: float, service: float, seats: int) -> float:
    """Mean wait of M/M/c (Erlang C)."""
    load = rate * service
    busy = load**seats / factorial(seats) * seats / (seats - load)
    queued = busy / (sum(load**k / factorial(k) for k in range(seats)) + busy)
    return queued * service / (seats - load)


def test_equal_answers_wait_as_in_m_d_1() -> None:
    service, load = 0.1, 0.6
    wait = mean_wait(requests(load / service, np.full(60_000, 100), seed=3))
    assert wait == pytest.approx(load * service / (2 * (1 - load)), rel=0.03)


def test_exponential_answers_wait_as_in_m_m_1() -> None:
    service, load = 0.2, 0.5
    wait = mean_wait(requests(load / service, answers(200, 80_000, seed=5), seed=6))
    assert wait == pytest.approx(load * service / (1 - load), rel=0.03)


def test_an_engine_with_three_seats_waits_as_in_m_m_3() -> None:
    service, load, seats = 0.3, 0.5, 3
    rate = seats * load / service
    wait = mean_wait(requests(rate, answers(300, 80_000, seed=7), seed=8), seats=seats)
    assert wait == pytest.approx(erlang_wait(rate, service, seats), rel=0.03)


def test_randomly_routed_replicas_are_independent_queues() -> None:
    service, load, replicas = 0.2, 0.5, 4
    rate = replicas * load / service
    wait = mean_wait(requests(rate, answers(200, 80_000, seed=9), seed=10), replicas=replicas)
    assert wait == pytest.approx(load * service / (1 - load), rel=0.03)


class Occupancy(Log):
    """Integrates the running sequences over time."""

    area = 0

    def leap(self, leap: Leap, allocator: Allocator) -> None:
        self.area += leap.running * (leap.end - leap.start)


def test_littles_law_holds_to_the_picosecond() -> None:
    log = Occupancy()
    pool = Paged(2_000)
    engine = Replica(0, Chunked(pool, max_num_seqs=7), pool, FixedSteps())
    simulate(requests(30.0, answers(100, 2_000, seed=11), seed=12), [engine], RoundRobin(), log)
    served = [(s.scheduled, s.finished) for s in log.sequences]
    assert log.area == sum(end - start for start, end in served if start is not None and end)
