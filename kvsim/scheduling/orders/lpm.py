"""Longest prefix match first."""

from __future__ import annotations

from collections import deque

from kvsim.core import Sequence
from kvsim.scheduling.orders.fcfs import FCFS
from kvsim.scheduling.orders.order import MOST_SORTED, Find, hits


class LPM(FCFS):
    """Who hits most goes first, of equals who came first; requests may starve.

    Source: Zheng et al., SGLang (arXiv:2312.07104), section 3; SGLang 0.5.23
    ``managers/schedule_policy.py`` (``_sort_by_longest_prefix``).
    """

    def sort(self, waiting: deque[Sequence], find: Find) -> deque[Sequence]:
        """By hit; those that had better wait for another's prefix come last."""
        if len(waiting) > MOST_SORTED:
            return waiting
        ranked = [(later, -hit, one) for one, hit, later in hits(waiting, find)]
        ranked.sort(key=lambda entry: (entry[0], 0 if entry[0] else entry[1]))
        return deque(one for _, _, one in ranked)
