"""Another order in which cached blocks are given up."""

from __future__ import annotations

from kvsim.advice.comparison import Comparison
from kvsim.advice.techniques.technique import Reason, Trial
from kvsim.scenario import Scenario


class Eviction:
    """S3-FIFO (SOSP 2023), which drops early what is asked for only once, against LRU."""

    name = "eviction by S3-FIFO"
    price = None

    def trial(self, scenario: Scenario) -> Trial | Reason:
        """LRU against it, where there is a prefix cache."""
        if scenario.allocator.name != "paged" or not scenario.enable_prefix_caching:
            return Reason("there is no cache of blocks to evict from")
        return Trial({"eviction": "lru"}, {"eviction": "s3-fifo"})

    def reason(self, seen: Comparison) -> Reason:
        """Whether anything was evicted, and what the order changed."""
        if not seen.before("num_evictions"):
            return Reason("working set fits: no cached block was ever evicted")
        lru, other = seen.before("prefix_cache_hit_rate"), seen.after("prefix_cache_hit_rate")
        return Reason(f"it finds {other:.1%} of prompt tokens, LRU finds {lru:.1%}")
