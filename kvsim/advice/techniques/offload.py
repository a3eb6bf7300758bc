"""Cached blocks that go to the host's memory instead of being lost."""

from __future__ import annotations

from kvsim.advice.comparison import Comparison
from kvsim.advice.techniques.technique import Reason, Trial
from kvsim.scenario import Scenario

INERT_MISS = 0.02
"""Share of prompt tokens lost to evictions below which no second tier can matter."""


class Offload:
    """A second tier is not replayed: what it could find at most is known without it."""

    name = "offload to host memory"
    price = None

    def trial(self, scenario: Scenario) -> Trial | Reason:
        """The deployment as it is, twice."""
        if not scenario.enable_prefix_caching:
            return Reason("prefix caching is off, so nothing is kept that could be moved")
        return Trial({}, {})

    def reason(self, seen: Comparison) -> Reason:
        """Whether anything was evicted that came again."""
        known, hits = seen.facts, seen.before("prefix_cache_hit_rate")
        if not known.named:
            return Reason("the trace does not say which prompts begin alike", known=False)
        if not seen.before("num_evictions"):
            return Reason("working set fits: no cached block was ever evicted, offload inert")
        lost = max(0.0, known.shared - hits)
        if lost < INERT_MISS:
            return Reason(
                f"evictions cost {lost:.1%} of prompt tokens, which is all that offload could bring"
            )
        return Reason(
            f"evictions cost {lost:.0%} of prompt tokens, which offload might bring back; a second "
            "tier is not simulated",
            known=False,
        )
