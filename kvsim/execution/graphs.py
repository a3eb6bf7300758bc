"""Decode steps as CUDA graphs: captured once for a few batch sizes, replayed with padding."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from typing import NamedTuple

import torch
from torch import Tensor

from kvsim.core import Sequence
from kvsim.execution.engine import Chunk, Engine, Prompts

STEP = 8
"""Batches are padded to the next multiple of this, small ones to the next power of two."""


class Graph(NamedTuple):
    """A captured step and where it leaves its results."""

    graph: torch.cuda.CUDAGraph
    outputs: Tensor
    sampled: Tensor


class GraphedEngine(Engine):
    """An engine on a GPU whose pure decode steps are graphs; others are launched one by one."""

    device_seconds: float

    def prepare(self, most: int) -> None:
        """Capture steps of up to ``most`` sequences, and compile what mixed steps need."""
        self._sizes = sorted(sizes(most))
        self._rows = torch.full((self._sizes[-1],), self.seats.nobody, device=self.device)
        self._shown: list[int] = []
        self.device_seconds = 0.0
        self._first, self._last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
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
        self._first.record()
        step.graph.replay()
        self._last.record()
        return step.outputs[:count], step.sampled[:count]

    def mixed(self, rows: list[int], chunks: list[Chunk]) -> tuple[Tensor, Tensor]:
        """Launch the step kernel by kernel."""
        self._first.record()
        found = super().mixed(rows, chunks)
        self._last.record()
        return found

    def execute(self, prompts: Prompts, decodes: Seq[Sequence]) -> None:
        """Compute one iteration, and note what of it the device was busy."""
        super().execute(prompts, decodes)
        self.device_seconds += self._first.elapsed_time(self._last) / 1e3


def sizes(most: int) -> Iterator[int]:
    """Batch sizes that are captured, the last at least ``most``."""
    size = 1
    while size < most:
        yield size
        size = 2 * size if size < STEP else size + STEP
    yield size
