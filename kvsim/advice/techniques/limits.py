"""The limits of the scheduler: tokens in an iteration, and sequences that run at once."""

from __future__ import annotations

from kvsim.advice.comparison import Comparison
from kvsim.advice.techniques.technique import Reason, Trial
from kvsim.scenario import Scenario

SMALL_BUDGET = 2_048
"""vLLM's tokens in an iteration on GPUs below 70 GiB."""
FEWEST_SEATS = 8


class TokenBudget:
    """Shorter iterations, which interrupt decoding less and serve prompts more slowly."""

    name = "fewer tokens in an iteration"
    price = None

    def trial(self, scenario: Scenario) -> Trial | Reason:
        """As deployed against a quarter of it, or what small GPUs get."""
        budget = scenario.max_num_batched_tokens or 0
        fewer = min(SMALL_BUDGET, budget // 4)
        if fewer < (scenario.max_num_seqs or 1):
            fewer = scenario.max_num_seqs or 1
        if fewer >= budget:
            return Reason(f"an iteration has only {budget:,} tokens already")
        return Trial({}, {"max_num_batched_tokens": fewer})

    def reason(self, seen: Comparison) -> Reason:
        """Whether iterations ever got that long."""
        fewer = seen.with_it.scenario.max_num_batched_tokens or 0
        if seen.facts.longest_prompt <= fewer and seen.facts.clients == 1:
            return Reason(f"no prompt has more than {fewer:,} tokens")
        if seen.verdict == "inert":
            return Reason(f"too few iterations had more than {fewer:,} tokens to matter")
        cut = f"prompts are cut at {fewer:,} tokens, so they take more iterations"
        return Reason(f"{cut}; {more_room(seen)}" if more_room(seen) else cut)


class Seats:
    """Fewer sequences at once: each is faster, more wait."""

    name = "fewer sequences at once"
    price = None

    def trial(self, scenario: Scenario) -> Trial | Reason:
        """As deployed against an eighth of the seats."""
        seats = scenario.max_num_seqs or 0
        fewer = max(FEWEST_SEATS, seats // 8)
        if fewer >= seats:
            return Reason(f"only {seats} sequences run at once already")
        return Trial({}, {"max_num_seqs": fewer})

    def reason(self, seen: Comparison) -> Reason:
        """Whether so many ever ran."""
        fewer = seen.with_it.scenario.max_num_seqs or 0
        clients = seen.facts.clients
        if seen.verdict != "inert" and more_room(seen):
            return Reason(more_room(seen))
        if clients is not None and clients <= fewer:
            return Reason(f"{clients} at once never need more than {fewer} seats")
        waited = seen.after("mean_queue_time_ms") - seen.before("mean_queue_time_ms")
        if waited < 1:
            return Reason(f"so many never ran: with {fewer} seats nobody waits longer")
        return Reason(f"with {fewer} seats requests wait {waited:,.0f} ms longer on average")


def more_room(seen: Comparison) -> str:
    """What an engine that prepares for less has left for its KV cache; empty if no more."""
    before, after = seen.before("kv_blocks_total"), seen.after("kv_blocks_total")
    if after <= before:
        return ""
    return f"less is set aside for them: {after:,.0f} blocks of KV cache instead of {before:,.0f}"
