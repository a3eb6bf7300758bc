"""A radix cache alone, one request at a time: for comparison with recorded decisions of SGLang's.

No time passes and nothing runs at once, so that any difference is a difference of the cache's rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kvsim.core import Request
from kvsim.memory.eviction import LRU, EvictionPolicy
from kvsim.memory.radix_tree import RadixTree, content_of


class Decision(NamedTuple):
    """What the cache did with one request."""

    row: int
    prompt: int
    output: int
    hit: int
    """Tokens of the prompt that were cached."""
    inserted: int
    """1 if prompt and output are cached now, 0 if they did not fit."""
    resident_after: int
    """Cached tokens after the request."""


def replay_sequential(
    requests: Iterable[Request],
    capacity_tokens: int,
    page_size: int,
    policy: EvictionPolicy | None = None,
) -> Iterator[Decision]:
    """Drive a tree of ``capacity_tokens`` tokens with one request after the other.

    Each matches its prompt (all of it: no token is kept back), holds the match, evicts what it lacks
    for the rest of prompt and output, and caches both. This is the sequence of calls with which
    SGLang's own cache was recorded for comparison.
    """
    tree = RadixTree(page_size, policy or LRU())
    for request in requests:
        content = content_of(request)
        prompt, tokens = request.prompt_tokens, request.prompt_tokens + request.output_tokens
        prefix = tree.find(content, prompt)
        held = tree.use(prefix)
        tree.lock(held)
        need = tokens - prefix.tokens
        tree.evict(need - (capacity_tokens - tree.tokens))
        fits = need <= capacity_tokens - tree.tokens
        if fits:
            tree.insert(content, tokens)
        tree.unlock(held)
        yield Decision(request.row, prompt, tokens - prompt, prefix.tokens, int(fits), tree.tokens)
