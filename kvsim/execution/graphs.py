"""Steps as CUDA graphs: captured once for a few sizes of batches, replayed with padding."""

from __future__ import annotations

import gc
from bisect import bisect_left
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from typing import NamedTuple

import torch
from torch import Tensor

from kvsim.core import Request, Sequence
from kvsim.execution.engine import Drawn, Engine, Prompts
from kvsim.execution.places import Chunk, Places, Size, drawn_rows, placed
from kvsim.execution.seats import words

STEP = 8
"""Batches of decodes are padded to the next multiple of this, small ones to the next power of two."""
DECODES = (8, 16, 24, 32, 48, 64, 96, 128)
"""Decodes that a captured step with prompts has room for."""
PROMPTS = 4
"""Prompts that it has room for."""
TOKENS = (*range(64, 577, 64), *range(640, 1025, 128))
"""Their new tokens. Larger steps keep the device busy longer than they take to launch."""
SHORT = 8192
"""Contexts from which the prompts' kernel works in larger tiles: those steps are not captured."""
MIXTURES = ((1,), (16,), (17,), (1, 1), (16, 16), (17, 16), (1,) * 16, (2, *(1,) * 15))
"""Chunks for which whatever a step that is not captured needs is compiled ahead."""


class Staged:
    """Whole numbers for the device: pinned memory of the host, and what it is copied to.

    The host may write again once it knows the results of the step that it sent them for.
    """

    def __init__(self, count: int, device: str) -> None:
        self._pinned = torch.zeros(count, dtype=torch.int64, pin_memory=device == "cuda")
        self.here = self._pinned.numpy()
        self.there = torch.zeros(count, dtype=torch.int64, device=device)

    def send(self) -> None:
        """Copy them."""
        self.there.copy_(self._pinned, non_blocking=True)


class Graph(NamedTuple):
    """A captured step, what it reads and where it leaves its results."""

    staged: Staged
    graph: torch.cuda.CUDAGraph
    outputs: Tensor
    sampled: Tensor


class GraphedEngine(Engine):
    """An engine on a GPU whose steps are graphs, but for those with long or many prompts."""

    device_seconds: float

    def prepare(self, most: int) -> None:
        """Capture steps of up to ``most`` sequences, and compile what the others need."""
        gc.unfreeze()
        gc.collect()  # an engine before this one, with its memory
        self.device_seconds = 0.0
        self._first, self._last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._pool = torch.cuda.graph_pool_handle()
        self._sizes = sorted(sizes(most))
        self._compile()
        self._decodes = {size: self._captured_decode(size) for size in reversed(self._sizes)}
        rooms = [room for room in DECODES if room < most] + [most]
        self._room = sorted(set(rooms))
        self._mixed = {
            size: self._captured_mixed(size)
            for size in (Size(d, PROMPTS, t) for d in self._room for t in TOKENS)
        }
        gc.freeze()  # what is there by now stays, and would be looked through in every collection

    def _compile(self) -> None:
        """Launch steps of nobody's prompts, and a copy of no block."""
        self.copy([-1], [-1])
        for counts in MIXTURES:
            for longest in (max(counts), SHORT):
                size = Size(1, len(counts), sum(counts))
                packed = placed(
                    [self.seats.nobody], nobodies(counts, self.seats.nobody), size, self.text, 0
                )
                self.mixed_step(Places.of(torch.from_numpy(packed).to(self.device), size), longest)
        self._forget_nobody()

    def _forget_nobody(self) -> None:
        """Whatever a step of nobody left must not look like a token."""
        self.seats.lengths[self.seats.nobody] = 0

    def _captured_decode(self, size: int) -> Graph:
        staged = Staged(size + words(size), self.device)
        rows, changes = staged.there[:size], staged.there[size:]
        self._show(staged, [], size)

        def step() -> tuple[Tensor, Tensor]:
            self.seats.write(changes, size)
            return self.decode_step(rows)

        return self._captured(staged, step)

    def _show(self, staged: Staged, rows: list[int], size: int) -> None:
        """Tell the device who decodes, and what has changed in all tables."""
        if self.seats.changed > size:
            self.seats.settle()
        staged.here[:size] = rows + [self.seats.nobody] * (size - len(rows))
        self.seats.pack(staged.here[size:], size)
        self.seats.forget()
        staged.send()

    def _captured_mixed(self, size: Size) -> Graph:
        nobody = self.seats.nobody
        staged = Staged(sum(size.parts), self.device)
        staged.here[:] = placed([], nobodies((1,), nobody), size, self.text, nobody)
        staged.send()
        places = Places.of(staged.there, size)
        graph = self._captured(staged, lambda: self.mixed_step(places, 1))
        self._forget_nobody()
        return graph

    def _captured(self, staged: Staged, step: Callable[[], tuple[Tensor, Tensor]]) -> Graph:
        step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.decoder.random)
        with torch.cuda.graph(graph, pool=self._pool):
            outputs, sampled = step()
        return Graph(staged, graph, outputs, sampled)

    def _replay(self, step: Graph, rows: list[int]) -> Drawn:
        self._first.record()
        step.graph.replay()
        self._last.record()
        return Drawn(step.outputs, step.sampled, rows)

    def decode(self, rows: list[int]) -> Drawn:
        """Replay the smallest graph that holds the batch."""
        size = self._sizes[bisect_left(self._sizes, len(rows))]
        step = self._decodes[size]
        self._show(step.staged, rows, size)
        return self._replay(step, list(range(len(rows))))

    def mixed(self, rows: list[int], chunks: list[Chunk]) -> Drawn:
        """Replay the smallest graph that holds the batch; without one, launch kernel by kernel."""
        size = self._size(rows, chunks)
        if size is None:
            self._first.record()
            drawn = super().mixed(rows, chunks)
            self._last.record()
            return drawn
        self.seats.settle()
        step = self._mixed[size]
        step.staged.here[:] = placed(rows, chunks, size, self.text, self.seats.nobody)
        step.staged.send()
        return self._replay(step, drawn_rows(rows, chunks, size))

    def _size(self, rows: list[int], chunks: list[Chunk]) -> Size | None:
        """The captured size that holds a batch, if there is one."""
        tokens = sum(chunk.stop - chunk.start for chunk in chunks)
        longest = max(chunk.stop for chunk in chunks)
        if len(chunks) > PROMPTS or tokens > TOKENS[-1] or longest >= SHORT:
            return None
        room = self._room[bisect_left(self._room, len(rows))]
        return Size(room, PROMPTS, TOKENS[bisect_left(TOKENS, tokens)])

    def execute(self, prompts: Prompts, decodes: Seq[Sequence]) -> None:
        """Compute one iteration, and note what of it the device was busy."""
        super().execute(prompts, decodes)
        self.device_seconds += self._first.elapsed_time(self._last) / 1e3


def sizes(most: int) -> Iterator[int]:
    """Batches of decodes that are captured, the last at least ``most``."""
    size = 1
    while size < most:
        yield size
        size = 2 * size if size < STEP else size + STEP
    yield size


def nobodies(counts: Seq[int], nobody: int) -> list[Chunk]:
    """Prompts of these lengths that write nowhere."""
    return [
        Chunk(Sequence(Request(0, 0.0, count + 1, 1), 0), nobody, 0, count, False)
        for count in counts
    ]
