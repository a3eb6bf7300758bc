"""A weighted score of recency, frequency and importance."""

from __future__ import annotations

from math import inf

from kvsim.core import picoseconds
from kvsim.memory.eviction.accepted import between, positive
from kvsim.memory.eviction.entry import Entry


class Weighted:
    """The entry with the lowest weighted sum of three terms, each from 0 to 1, leaves first.

    Recency: 1 when it is used, falling evenly to 0 after ``horizon`` seconds (and below, so that the
    order of two entries changes only when one is used). Frequency: ``hits / (hits + 1)``.
    Importance: how much attention its tokens draw, which a trace does not say; the first tokens of a
    prompt draw most (attention sinks), hence ``sink / (sink + start)``.

    The formula that is often quoted, ``0.5 / (age + 1) + 0.3 * uses + 0.2 * importance``, adds a
    term without bound to two that are at most 0.5 and 0.2: for ages of 5 or more it orders as LFU.
    Source of the sinks: Xiao et al., Efficient streaming language models with attention sinks (ICLR
    2024).
    """

    def __init__(
        self,
        *,
        recency: float = 0.5,
        frequency: float = 0.3,
        importance: float = 0.2,
        horizon: float = 600.0,
        sink: int = 512,
    ) -> None:
        between(0, inf, recency=recency, frequency=frequency, importance=importance)
        positive(horizon=horizon, sink=sink)
        self._weights = (recency, frequency, importance)
        self._horizon = picoseconds(horizon)
        self._sink = sink

    def priority(self, entry: Entry) -> float:
        """The weighted sum, up to what it loses with time, which all lose alike."""
        recency, frequency, importance = self._weights
        return (
            recency * entry.arrival / self._horizon
            + frequency * entry.hits / (entry.hits + 1)
            + importance * self._sink / (self._sink + entry.start)
        )
