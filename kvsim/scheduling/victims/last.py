"""The latest goes: first come, first served."""

from __future__ import annotations

from kvsim.protocols import Standing


class Last:
    """The sequence that was admitted last, as vLLM under its default policy.

    Source: vLLM 0.23.0 ``v1/core/sched/scheduler.py`` (``running.pop()``).
    """

    def rank(self, standing: Standing) -> int:
        """By rank of admission."""
        return standing.sequence.order
