"""A radix tree instead of hashed blocks (RadixAttention, arXiv:2312.07104)."""

from __future__ import annotations

from kvsim.advice.comparison import Comparison
from kvsim.advice.techniques.technique import Reason, Trial
from kvsim.scenario import Scenario


class RadixTree:
    """SGLang's tree, which shares to the token, against vLLM's blocks."""

    name = "radix tree"
    price = None

    def trial(self, scenario: Scenario) -> Trial | Reason:
        """Both with a prefix cache."""
        if not scenario.enable_prefix_caching:
            return Reason("prefix caching is off, and sharing is what the tree is for")
        return Trial({"allocator": "paged"}, {"allocator": "radix"})

    def reason(self, seen: Comparison) -> Reason:
        """The hits of both."""
        blocks, tree = seen.before("prefix_cache_hit_rate"), seen.after("prefix_cache_hit_rate")
        if not seen.facts.named:
            return Reason("the trace does not say which prompts begin alike", known=False)
        return Reason(f"it finds {tree:.1%} of prompt tokens, blocks find {blocks:.1%}")
