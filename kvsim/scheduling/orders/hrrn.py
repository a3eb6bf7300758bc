"""Highest response ratio next."""

from __future__ import annotations

from collections import deque
from math import inf

from kvsim.core import Sequence
from kvsim.scheduling.orders.order import MOST_SORTED, Find, hits


class HRRN:
    """By the tokens computed for others since a request arrived, over those that it lacks itself.

    Short prompts and long waits go first, so that nobody starves. Of equals the earlier row goes
    first. Source: SGLang 0.5.23 ``managers/schedule_policy.py`` (``_sort_by_hrrn``).
    """

    def __init__(self) -> None:
        self._computed = 0
        self._before: dict[int, int] = {}
        """By row, what was computed before its request arrived; of those that wait, at least."""

    def arrives(self, sequence: Sequence) -> None:
        """Its wait begins."""
        self._before[sequence.request.row] = self._computed

    def computes(self, tokens: int) -> None:
        """All that wait have waited longer."""
        self._computed += tokens

    def sort(self, waiting: deque[Sequence], find: Find) -> deque[Sequence]:
        """By ratio; those that had better wait for another's prefix come last."""
        if len(waiting) > MOST_SORTED:
            return waiting
        self._before = {one.request.row: self._before[one.request.row] for one in waiting}
        ranked = [
            (inf if later else -self._ratio(one, hit), one.request.row, one)
            for one, hit, later in hits(waiting, find)
        ]
        ranked.sort(key=lambda entry: entry[:2])
        return deque(one for _, _, one in ranked)

    def _ratio(self, sequence: Sequence, hit: int) -> float:
        missing = sequence.request.prompt_tokens - hit
        if missing <= 0:
            return inf
        return (self._computed - self._before[sequence.request.row]) / missing
