"""Decode steps as CUDA graphs: captured once for a few batch sizes, replayed with padding."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from kvsim.execution.engine import Engine

STEP = 8
"""Batches are padded to the next multiple of this, small ones to the next power of two."""


class Graph(NamedTuple):
    """A captured step and where it leaves its results."""

    graph: torch.cuda.CUDAGraph
    outputs: Tensor
    sampled: Tensor


class GraphedEngine(Engine):
    """An engine on a GPU whose pure decode steps are graphs; others are launched one by one."""

    def prepare(self, most: int) -> None:
        """Capture steps of up to ``most`` sequences, and compile what mixed steps need."""
        self._sizes = sorted(sizes(most))
        self._rows = torch.full((self._sizes[-1],), self.seats.nobody, device=self.device)
        self._shown: list[int] = []
        self._graphs: dict[int, Graph] = {}
        self._pool = torch.cuda.graph_pool_handle()
        for size in reversed(self._sizes):
            self._graphs[size] = self._captured(size)

    def _captured(self, size: int) -> Graph:
        rows = self._rows[:size]
        self.decode_step(rows)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.decoder.random)
        with torch.cuda.graph(graph, pool=self._pool):
            outputs, sampled = self.decode_step(rows)
        return Graph(graph, outputs, sampled)

    def decode(self, rows: list[int]) -> tuple[Tensor, Tensor]:
        """Replay the smallest graph that holds the batch."""
        count = len(rows)
        size = self._sizes[bisect_left(self._sizes, count)]
        if rows != self._shown:
            padded = rows + [self.seats.nobody] * (len(self._rows) - count)
            self._rows.copy_(torch.tensor(padded))
            self._shown = rows
        step = self._graphs[size]
        step.graph.replay()
        return step.outputs[:count], step.sampled[:count]


def sizes(most: int) -> Iterator[int]:
    """Batch sizes that are captured, the last at least ``most``."""
    size = 1
    while size < most:
        yield size
        size = 2 * size if size < STEP else size + STEP
    yield size
