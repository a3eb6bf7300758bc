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
        described = min(request.prompt_tokens, request.hash_block * len(request.hash_ids or []))
        for index, block in enumerate(blocks_of(request, size, partial=partial)):
            hit = access(block)
            contiguous = contiguous and hit
            found += hit
            usable += contiguous
            tokens += size * (contiguous and (index + 1) * size <= described)
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


def ranked(capacity: int, rank: Callable[[list[int]], object]) -> Callable[[Block], bool]:
    """The block with the lowest rank leaves, all scanned; ``rank`` sees insertion, latest use, uses."""
    kept: dict[Block, list[int]] = {}
    now = 0

    def access(block: Block) -> bool:
        nonlocal now
        now += 1
        seen = kept.get(block)
        if seen is not None:
            seen[1:] = [now, seen[2] + 1]
            return True
        if len(kept) == capacity:
            del kept[min(kept, key=lambda one: rank(kept[one]))]
        kept[block] = [now, now, 1]
        return False

    return access


def sieve(capacity: int) -> Callable[[Block], bool]:
    """The hand goes from the oldest to the newest and drops what was not used since it came by."""
    queue: list[Block] = []
    used: dict[Block, bool] = {}
    hand = 0

    def access(block: Block) -> bool:
        nonlocal hand
        if block in used:
            used[block] = True
            return True
        if len(queue) == capacity:
            hand %= capacity
            while used[queue[hand]]:
                used[queue[hand]] = False
                hand = (hand + 1) % capacity
            del used[queue.pop(hand)]
            if hand == len(queue):  # it was the newest: the hand begins anew
                hand = 0
        queue.append(block)
        used[block] = False
        return False

    return access


def arc(capacity: int) -> Callable[[Block], bool]:
    """Figure 4 of the paper, with four lists."""
    t1: list[Block] = []
    t2: list[Block] = []
    b1: list[Block] = []
    b2: list[Block] = []
    share = 0.0

    def replace(in_b2: bool) -> None:
        if t1 and (len(t1) > share or (in_b2 and len(t1) == share)):
            b1.append(t1.pop(0))
        else:
            b2.append(t2.pop(0))

    def access(block: Block) -> bool:
        nonlocal share
        for once_or_more in (t1, t2):
            if block in once_or_more:
                once_or_more.remove(block)
                t2.append(block)
                return True
        if block in b1:
            share = min(capacity, share + max(1, len(b2) / len(b1)))
            replace(False)
            b1.remove(block)
            t2.append(block)
        elif block in b2:
            share = max(0, share - max(1, len(b1) / len(b2)))
            replace(True)
            b2.remove(block)
            t2.append(block)
        else:
            if len(t1) + len(b1) == capacity:
                if len(t1) < capacity:
                    b1.pop(0)
                    replace(False)
                else:
                    t1.pop(0)
            elif len(t1) + len(t2) + len(b1) + len(b2) >= capacity:
                if len(t1) + len(t2) + len(b1) + len(b2) == 2 * capacity:
                    b2.pop(0)
                replace(False)
            t1.append(block)
        return False

    return access


def belady(capacity: int, accesses: list[Block]) -> Callable[[Block], bool]:
    """The block that is used again last leaves; it knows all accesses and is asked for them in order."""
    uses: dict[Block, list[int]] = {}
    for at in reversed(range(len(accesses))):
        uses.setdefault(accesses[at], []).append(at)
    kept: dict[Block, int] = {}

    def access(block: Block) -> bool:
        uses[block].pop()
        upcoming = uses[block][-1] if uses[block] else len(accesses)
        hit = block in kept
        if not hit and len(kept) == capacity:
            del kept[max(kept, key=kept.__getitem__)]
        kept[block] = upcoming
        return hit

    return access
