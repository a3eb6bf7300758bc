"""What is known of a situation's requests before any replay: what explains why a technique does nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.core import Request
from kvsim.workload.prefixes import IdealCache


class Facts(NamedTuple):
    """Some requests in numbers."""

    requests: int
    clients: int | None
    mean_prompt: float
    longest_prompt: int
    mean_output: float
    named: float
    """Share of requests that say what their prompt holds."""
    shared: float
    """Share of prompt tokens that an unbounded cache would find."""
    longest_shared: int
    """Tokens of the longest prefix that an earlier prompt had, in the blocks of the trace."""


def facts(requests: Sequence[Request], clients: int | None) -> Facts:
    """Measure the requests of a situation."""
    cache, longest = IdealCache(), 0
    for request in requests:
        before = cache.token_hits
        cache.add(request)
        longest = max(longest, cache.token_hits - before)
    prompts = [request.prompt_tokens for request in requests]
    return Facts(
        requests=len(requests),
        clients=clients,
        mean_prompt=sum(prompts) / len(prompts),
        longest_prompt=max(prompts),
        mean_output=sum(request.output_tokens for request in requests) / len(requests),
        named=sum(1 for request in requests if request.hash_ids) / len(requests),
        shared=cache.token_hits / sum(prompts),
        longest_shared=longest,
    )
