"""The least important goes."""

from __future__ import annotations

from kvsim.protocols import Standing


class LowestPriority:
    """The highest ``priority`` value of the trace, of equals the latest, as vLLM's priority policy.

    Source: vLLM 0.23.0 ``v1/core/sched/scheduler.py`` (``max(running, key=(priority, arrival))``).
    """

    def rank(self, standing: Standing) -> int:
        """By the request's priority; lower values are more important."""
        return standing.sequence.request.priority
