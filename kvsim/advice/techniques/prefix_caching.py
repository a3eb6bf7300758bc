"""The KV of prompts that begin alike is kept and reused (vLLM's prefix cache, SGLang's radix tree)."""

from __future__ import annotations

from kvsim.advice.comparison import Comparison
from kvsim.advice.techniques.technique import Reason, Trial, share
from kvsim.scenario import Scenario


class PrefixCaching:
    """On against off."""

    name = "prefix caching"
    price = None

    def trial(self, scenario: Scenario) -> Trial | Reason:
        """The deployment's allocator without and with it."""
        allocator = scenario.allocator.name
        if allocator not in ("paged", "radix"):
            return Reason(f"{allocator} memory shares nothing")
        return Trial(
            {"allocator": "paged", "enable_prefix_caching": False}, {"enable_prefix_caching": True}
        )

    def reason(self, seen: Comparison) -> Reason:
        """How many tokens were found, or why none were."""
        known = seen.facts
        hits = seen.after("prefix_cache_hit_rate")
        if not known.named:
            return Reason("the trace does not say which prompts begin alike", known=False)
        if not known.shared:
            return Reason("no prompt begins like an earlier one")
        block = seen.with_it.scenario.block_size
        if not hits and known.longest_shared < block:
            return Reason(
                f"prefix shorter than a block: {known.longest_shared} tokens are shared at most, "
                f"a block has {block}"
            )
        # What can be found is known in the blocks of the trace: smaller ones may find a little more.
        could = max(hits, known.shared)
        found = f"{hits:.0%} of prompt tokens were found of {could:.0%} that could be"
        if seen.verdict != "inert":
            return Reason(found)
        waiting = share(seen.before("mean_ttft_ms"), seen.before("mean_e2el_ms"))
        return Reason(f"{found}, but prompts are {waiting:.1%} of the time of a request")
