"""T-LRU: LRU that first gives up what the slowest answers do not need."""

from __future__ import annotations

from math import inf

from kvsim.memory.eviction.accepted import between
from kvsim.memory.eviction.entry import Entry


class TailLRU:
    """Tokens that the next turn can compute within its objective leave before all others.

    A turn of ``turn`` new tokens that finds all but the last ``threshold - turn`` tokens of its
    conversation computes ``threshold`` tokens, which is fast enough; keeping more of this
    conversation helps no tail. ``threshold``: new tokens that are computed within the objective for
    the time to first token; ``turn``: new tokens that a turn brings. Among equals LRU.
    Source: Zhang et al., Tail-optimized caching for LLM inference (arXiv:2510.15152), T-LRU.
    """

    def __init__(self, *, threshold: int = 4096, turn: int = 512) -> None:
        between(0, inf, threshold=threshold, turn=turn)
        self._spare = max(0, threshold - turn)

    def priority(self, entry: Entry) -> tuple[float, ...]:
        """What nobody's tail needs, then the rest; each by the latest use."""
        return (entry.end <= entry.prompt - self._spare, entry.last_access)
