"""Long prompts in pieces, so that decoding goes on beside them (Sarathi-Serve, arXiv:2403.02310)."""

from __future__ import annotations

from kvsim.advice.comparison import Comparison
from kvsim.advice.techniques.technique import Reason, Trial
from kvsim.catalog import load_model
from kvsim.scenario import Scenario


class ChunkedPrefill:
    """vLLM V1's scheduler against Orca's iterations with whole prompts."""

    name = "chunked prefill"
    price = None

    def trial(self, scenario: Scenario) -> Trial | Reason:
        """Whole prompts need iterations, and memory for them, as long as the longest prompt may be."""
        budget = scenario.max_num_batched_tokens or 0
        longest = scenario.max_model_len or load_model(scenario.model).max_positions or budget
        whole = {"scheduler": "continuous", "max_num_batched_tokens": max(budget, longest)}
        return Trial(whole, {"scheduler": "chunked"})

    def reason(self, seen: Comparison) -> Reason:
        """Whether there was anything to cut, and anybody to disturb."""
        budget = seen.with_it.scenario.max_num_batched_tokens or 0
        longest = seen.facts.longest_prompt
        if seen.verdict != "inert":
            return Reason(
                f"prompts of up to {longest:,} tokens are cut to {budget:,} an iteration, and share "
                "them with what decodes"
            )
        if seen.facts.clients == 1:
            return Reason("one request at a time: no other decodes that a prompt could disturb")
        if longest <= budget:
            return Reason(f"no prompt is longer than the {budget:,} tokens of an iteration")
        return Reason(f"few prompts exceed the {budget:,} tokens of an iteration")
