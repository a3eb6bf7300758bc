"""Block caches in the plainest way: one block after the other through dicts and lists, all scanned."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kvsim.core import Request

Block = tuple[object, ...]


class Counted(NamedTuple):
    """Hits of a whole trace: blocks wherever they were, and those that a prompt can use."""

    any: int
    usable: int
    tokens: int


def blocks_of(request: Request, size: int, *, partial: str = "drop") -> list[Block]:
    """The blocks of a prompt, each named by its number and all ids from the prompt's start to its end."""
    width, ids = request.hash_block, list(request.hash_ids or [])
    described = min(request.prompt_tokens, width * len(ids))
    ends = list(range(size, described + 1, size))
    if partial == "keep" and described % size:
        ends.append(described)
    return [(width, n, *ids[: -(-end // width)]) for n, end in enumerate(ends)]


def replay(
    requests: Iterable[Request],
    access: Callable[[Block], bool],
    size: int,
    *,
    partial: str = "drop",
) -> Counted:
    """Access every block in order; ``access`` says whether it was there."""
    found = usable = tokens = 0
    for request in requests:
        contiguous = True
        for index, block in enumerate(blocks_of(request, size, partial=partial)):
            hit = access(block)
            contiguous = contiguous and hit
            found += hit
            usable += contiguous
            tokens += size * (contiguous and (index + 1) * size <= request.prompt_tokens)
    return Counted(found, usable, tokens)


def lru(capacity: int) -> Callable[[Block], bool]:
    """The least recently used block leaves."""
    kept: OrderedDict[Block, None] = OrderedDict()

    def access(block: Block) -> bool:
        hit = block in kept
        kept[block] = None
        kept.move_to_end(block)
        if len(kept) > capacity:
            kept.popitem(last=False)
        return hit

    return access
