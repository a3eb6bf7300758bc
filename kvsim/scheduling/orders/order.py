"""The seam of orders, and what those have in common that look at what is cached."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from kvsim.core import Match, Sequence

Find = Callable[[Sequence], Match]
"""What a sequence would hit now; changes nothing."""

MOST_SORTED = 128
"""A longer queue is not looked through: it stays as it is."""
SHORT = 32
"""A hit of no more tokens does not count against a prefix that somebody else who waits computes."""
SHARED = 32
"""Tokens that make such a prefix."""


class Order(Protocol):
    """Sorts the queue before each batch of prompts."""

    def arrives(self, sequence: Sequence) -> None:
        """It joins the end of the queue."""
        ...

    def computes(self, tokens: int) -> None:
        """Prompts of the batch have so many more tokens."""
        ...

    def sort(self, waiting: deque[Sequence], find: Find) -> deque[Sequence]:
        """The queue in the order in which its requests are admitted, and are kept from then on."""
        ...


def hits(waiting: Iterable[Sequence], find: Find) -> Iterator[tuple[Sequence, int, bool]]:
    """Each sequence with its hit, and whether another computes a prefix for it if it waits.

    Of those that share their first tokens with each other but little with the cache, all but the
    first are to wait: they will hit what it computes.
    """
    computed: set[object] = set()
    for sequence in waiting:
        hit, later = find(sequence).tokens, False
        if hit <= SHORT and (beginning := _beginning(sequence)) is not None:
            later = beginning in computed
            computed.add(beginning)
        yield sequence, hit, later


def _beginning(sequence: Sequence) -> object:
    """What names the first ``SHARED`` tokens; None where nobody else can have the same."""
    request = sequence.request
    width, ids = request.hash_block, request.hash_ids or ()
    if min(width * len(ids), request.prompt_tokens) < SHARED:
        return None
    return (width, *ids[: -(-SHARED // width)])
