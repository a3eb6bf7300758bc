"""Routers: which replica serves a request.

A router sees the load of each replica, never the length of the answer. Ties go to the lowest index,
so that a run depends on nothing but its inputs. Sources: round-robin and least-loaded are what
every HTTP balancer offers; two random choices are Mitzenmacher, "The Power of Two Choices in
Randomized Load Balancing" (IEEE TPDS 12(10), 2001).
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING

from kvsim.core import Request
from kvsim.protocols import Load, Router

if TYPE_CHECKING:
    import numpy as np


class RoundRobin:
    """Replicas in turn, whatever their load."""

    def __init__(self) -> None:
        self._next = 0

    def route(self, request: Request, replicas: Seq[Load], now: int) -> int:
        """Index of the replica after the one before."""
        chosen = self._next
        self._next = (chosen + 1) % len(replicas)
        return chosen


class LeastLoaded:
    """The replica with the fewest requests waiting or running."""

    def route(self, request: Request, replicas: Seq[Load], now: int) -> int:
        """Index of the shortest queue, the first of several."""
        lengths = [replica.queue_length for replica in replicas]
        return lengths.index(min(lengths))


class Random:
    """Any replica, with equal chance."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def route(self, request: Request, replicas: Seq[Load], now: int) -> int:
        """Index drawn uniformly."""
        return int(self._rng.integers(len(replicas)))


class PowerOfTwo:
    """The less loaded of two different replicas drawn at random."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def route(self, request: Request, replicas: Seq[Load], now: int) -> int:
        """Index of the shorter queue of the two; of equal ones the lower index."""
        count = len(replicas)
        if count == 1:
            return 0
        first = int(self._rng.integers(count))
        second = (first + 1 + int(self._rng.integers(count - 1))) % count
        return min((first, second), key=lambda index: (replicas[index].queue_length, index))


ROUTERS: dict[str, type[Router]] = {
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
    "random": Random,
    "power-of-two": PowerOfTwo,
}
