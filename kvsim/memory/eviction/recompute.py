"""What it costs to compute cached tokens again."""

from __future__ import annotations

from kvsim.memory.eviction.entry import Entry

BALANCE = 28_600
"""Context at which a token's attention costs as much as the rest of it, tokens. For Llama-3-8B: 2
FLOPs for each of 7.5e9 weights, 4 x 32 layers x 4,096 FLOPs for each token of context."""


def cost_per_token(entry: Entry, balance: int) -> float:
    """Mean cost of its tokens, relative to a first token: their context makes later ones dearer."""
    return 1 + (entry.start + entry.end) / (2 * balance)
