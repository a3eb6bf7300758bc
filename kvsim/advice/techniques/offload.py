"""Cached blocks that go to the host's memory instead of being lost (vLLM's native offloading)."""

from __future__ import annotations

from dataclasses import dataclass

from kvsim.advice.comparison import Comparison
from kvsim.advice.techniques.technique import Reason, Trial
from kvsim.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Offload:
    """A second tier behind the prefix cache; the engine that has one is simulated without and with it."""

    gibibytes: float
    """For each GPU."""
    name: str = "offload to host memory"
    price: str | None = "host memory"

    def trial(self, scenario: Scenario) -> Trial | Reason:
        """Under the engine's own rules and times, so that the tier is all that differs."""
        if scenario.allocator.name != "paged" or not scenario.enable_prefix_caching:
            return Reason("there is no cache of blocks that could be moved")
        if scenario.kv_offloading_size:
            return Reason(f"{scenario.kv_offloading_size:g} GiB of the host are used already")
        engine = {"engine": scenario.engine or "vllm"}
        return Trial(engine, {**engine, "kv_offloading_size": self.gibibytes})

    def reason(self, seen: Comparison) -> Reason:
        """Whether anything was evicted that came again."""
        known, hits = seen.facts, seen.before("prefix_cache_hit_rate")
        if not known.named:
            return Reason("the trace does not say which prompts begin alike", known=False)
        if not seen.before("num_evictions"):
            return Reason("working set fits: no cached block was ever evicted, offload inert")
        lost = max(0.0, known.shared - hits)
        found = f"evictions cost {lost:.1%} of prompt tokens"
        if seen.verdict == "inert":
            return Reason(f"{found}; {self.gibibytes:g} GiB of the host bring back too few of them")
        back = seen.after("prefix_cache_hit_rate") - hits
        return Reason(f"{found}; {self.gibibytes:g} GiB of the host bring back {back:.1%}")
