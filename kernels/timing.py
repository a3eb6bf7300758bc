"""Timing of device work: CUDA-graph replays between events, over inputs that do not fit in L2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch


class Spread(NamedTuple):
    """Seconds of one launch."""

    median: float
    p10: float
    p90: float
    repeats: int


def time_launches(launches: Sequence[Callable[[], object]], *, repeats: int = 60) -> Spread:
    """How long one launch takes, when the launches take turns.

    Each becomes a graph of its own. The queue is filled while the device is held up, so that the
    time between two events holds a graph's replay and no waiting for the host.
    """
    graphs = [_captured(launch) for launch in launches]
    events = [
        (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
        for _ in range(repeats)
    ]
    for graph in graphs:
        graph.replay()
    torch.cuda._sleep(20_000_000)
    for i, (start, end) in enumerate(events):
        start.record()
        graphs[i % len(graphs)].replay()
        end.record()
    torch.cuda.synchronize()
    return spread([start.elapsed_time(end) / 1e3 for start, end in events])


def time_chain(launches: Sequence[Callable[[], object]], *, repeats: int = 20) -> Spread:
    """How long one launch takes among many: a graph of all of them, divided by their number."""

    def all_of_them() -> None:
        for launch in launches:
            launch()

    whole = time_launches([all_of_them], repeats=repeats)
    n = len(launches)
    return Spread(whole.median / n, whole.p10 / n, whole.p90 / n, whole.repeats)


def spread(seconds: list[float]) -> Spread:
    """Median and deciles of samples."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    median, p10, p90 = (ordered[round(last * p)] for p in (0.5, 0.1, 0.9))
    return Spread(median, p10, p90, len(ordered))


def _captured(launch: Callable[[], object]) -> torch.cuda.CUDAGraph:
    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    return graph
