"""Preempted sequences wait in the host's memory instead of being computed again."""

from __future__ import annotations

from kvsim.advice.comparison import Comparison
from kvsim.advice.techniques.technique import Reason, Trial
from kvsim.scenario import Scenario


class Swapping:
    """Swap against recompute (PagedAttention, section 4.5)."""

    name = "swap on preemption"
    price = "host memory"

    def trial(self, scenario: Scenario) -> Trial | Reason:
        """Recompute against swap."""
        return Trial({"preemption": "recompute"}, {"preemption": "swap"})

    def reason(self, seen: Comparison) -> Reason:
        """Whether anybody lost its room, and what that cost."""
        lost = seen.before("num_preemptions")
        if not lost:
            return Reason("no sequence ever lost its room")
        again = seen.before("recomputed_tokens")
        return Reason(f"{lost:,.0f} preemptions, {again:,.0f} tokens computed again without it")
