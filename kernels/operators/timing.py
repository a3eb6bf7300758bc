"""How long a GPU operation takes: replays of a CUDA graph of many launches over rotating inputs.

A graph replays a launch over several sets of inputs, together larger than the L2 cache, as
the layers of a model do with their weights and KV; time per launch then includes the gap that a
captured kernel leaves behind. Before it is timed the card may idle, to stay at its top clock, and is
then kept busy for a while, as idling lowers the clock too. Without a GPU the host's clock stands in,
which is good for testing only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

ROTATION = 192 * 2**20
"""Bytes that the rotating inputs of one graph take at least: over three times an H200's L2."""

LONG = 5e-4
"""Seconds from which one set of inputs does: more than a cache holds is read meanwhile, or little matters."""
RESTS = 8
"""A card that rests before a point does so as long as this many replays of it take at least."""
WARM = 0.02
"""Seconds of launches before those that are timed with the host's part in them."""


class Timing(NamedTuple):
    """Time of one launch over repeated measurements, microseconds."""

    median: float
    p10: float
    p90: float
    repeats: int


class Work(NamedTuple):
    """An operation ready to be launched."""

    launch: Callable[[int], object]
    """Launches it on input set ``i`` modulo ``sets``."""
    sets: int = 1


def rotations(size: int) -> int:
    """Sets of inputs of ``size`` bytes that do not stay in the cache together."""
    return max(1, min(64, -(-ROTATION // max(size, 1))))


class Stopwatch:
    """Times work on one device."""

    def __init__(self, device: str, *, span: float = 2e-3, graph: float = 300e-6) -> None:
        """``span``: seconds that the repeats of one point take; ``graph``: that one replay takes."""
        self.device = torch.device(device)
        self._span, self._graph_time = span, graph
        self._pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None
        self._kept: torch.cuda.CUDAGraph | None = None

    def time(self, work: Work, *, heat: float = 2e-3, rest: float = 0.0) -> Timing:
        """Time one launch; the card idles ``rest`` seconds or more, then is busy for ``heat`` before."""
        if self.device.type != "cuda":
            return summary([host_time(work) for _ in range(3)])
        launches = self._launches(work)
        graph = self._capture(work, launches)
        once = min(self._replays(graph, 2))
        if once < self._graph_time:
            launches *= min(512, int(self._graph_time / once) + 1)
            graph = self._capture(work, launches)
            once = min(self._replays(graph, 2))
        time.sleep(max(rest, RESTS * once) if rest else 0.0)
        for _ in range(min(400, int(heat / once))):
            graph.replay()
        repeats = max(5, min(15, int(self._span / once)))
        return summary([1e6 * span / launches for span in self._replays(graph, repeats)])

    def time_events(self, work: Work) -> Timing:
        """Time one launch without a graph, launch overhead included."""
        if self.device.type != "cuda":
            return summary([host_time(work) for _ in range(3)])
        begun, spans, warmed = time.perf_counter(), [], 0
        while time.perf_counter() - begun < WARM:  # a host that has slept is slow at first
            work.launch(0)
            torch.cuda.synchronize()
            warmed += 1
        for i in range(max(5, min(25, 2 * warmed))):
            start, end = event(), event()
            torch.cuda.synchronize()
            start.record()
            work.launch(i)
            end.record()
            end.synchronize()
            spans.append(1e3 * start.elapsed_time(end))
        return summary(spans)

    def _launches(self, work: Work) -> int:
        """Launches of a graph that goes through all sets of inputs; one if it takes long."""
        for i in range(min(2, work.sets)):
            start, end = event(), event()
            start.record()
            work.launch(i)
            end.record()
        torch.cuda.synchronize()
        return work.sets if start.elapsed_time(end) < 1e3 * LONG else 1

    def _capture(self, work: Work, launches: int) -> torch.cuda.CUDAGraph:
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                for i in range(launches):
                    work.launch(i)
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        graph.replay()
        self._kept = graph  # a pool lives as long as one graph that uses it
        return graph

    def _replays(self, graph: torch.cuda.CUDAGraph, count: int) -> list[float]:
        """Seconds of each of ``count`` replays, queued one behind the other."""
        marks = [event() for _ in range(count + 1)]
        marks[0].record()
        for mark in marks[1:]:
            graph.replay()
            mark.record()
        marks[-1].synchronize()
        return [marks[i].elapsed_time(marks[i + 1]) / 1e3 for i in range(count)]


def event() -> torch.cuda.Event:
    """A mark on the GPU's own clock."""
    return torch.cuda.Event(enable_timing=True)


def host_time(work: Work) -> float:
    """Microseconds of one launch by the host's clock."""
    start = time.perf_counter()
    work.launch(0)
    return 1e6 * (time.perf_counter() - start)


def summary(spans: list[float]) -> Timing:
    """Median and deciles of microseconds."""
    ordered = sorted(spans)

    def rank(share: float) -> float:
        return ordered[round(share * (len(ordered) - 1))]

    return Timing(rank(0.5), rank(0.1), rank(0.9), len(ordered))
