"""A radix cache alone, one request at a time: for comparison with recorded decisions of SGLang's.

No time passes and nothing runs at once, so that any difference is a difference of the cache's rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.core import Request, picoseconds
from kvsim.errors import TraceError
from kvsim.memory.eviction import LRU, EvictionPolicy, EvictionQueue
from kvsim.memory.radix_content import content_of
from kvsim.memory.radix_tree import RadixTree
from kvsim.validation.arguments import Arguments
from kvsim.validation.reference import Mismatch, Verdict, beside, number, rows
from kvsim.validation.unmodelled import unmodelled
from kvsim.workload import open_trace

ABOUT = ("capacity_tokens", "page_size", "engine", "requests", "hit_tokens", "prompt_tokens")
"""What is read of a recording's cache, and what a recording says of itself."""


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
    policy: EvictionPolicy | EvictionQueue | None = None,
) -> Iterator[Decision]:
    """Drive a tree of ``capacity_tokens`` tokens with one request after the other.

    Each matches its prompt (all of it: no token is kept back), holds the match, evicts what it lacks
    for the rest of prompt and output, and caches both. This is the sequence of calls with which
    SGLang's own cache was recorded for comparison.
    """
    tree = RadixTree(page_size, policy or LRU())
    for request in requests:
        content = content_of(request)
        tree.serve(picoseconds(request.arrival or 0), request.prompt_tokens)
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


def check_radix(recording: Mapping[str, Any], path: Path, workload: Path | None) -> Verdict:
    """Drive a tree as the recorded one was driven and compare every row."""
    meta = recording.get("meta")
    capacity = number(path, "meta", meta, "capacity_tokens")
    page = number(path, "meta", meta, "page_size", least=1)
    recorded = rows(path, recording, "rows")
    fields = recording.get("fields")
    if fields != ["row", "prompt", "output", "hit", "inserted", "resident_after"]:
        raise TraceError(f"{path}: fields is {fields!r}; accepted: {list(Decision._fields)!r}")
    requests = islice(open_trace(beside(path, workload)), len(recorded))
    decisions = list(replay_sequential(requests, capacity, page))
    pairs = zip(map(tuple, recorded), decisions, strict=False)
    wrong = [(theirs, ours) for theirs, ours in pairs if theirs != ours]
    exact = len(decisions) - len(wrong)
    ignored = unmodelled([Arguments(f"{path}: meta", meta)], ABOUT)
    return Verdict(len(recorded), exact, _first(wrong, recorded, decisions), ignored)


def _first(
    wrong: list[tuple[tuple[int, ...], Decision]], recorded: list[Any], decisions: list[Decision]
) -> Mismatch | None:
    if wrong:
        theirs, ours = wrong[0]
        at = next(i for i, value in enumerate(ours) if value != theirs[i])
        field = Decision._fields[at].replace("resident_after", "tokens resident after it")
        told = f"request {ours.row}: {field} is {theirs[at]} in the engine and {ours[at]} here"
        return Mismatch(ours.row, Decision._fields[at], theirs[at], ours[at], told)
    if len(decisions) < len(recorded):
        row = len(decisions)
        told = f"the workload ends after {row} of {len(recorded)} recorded requests"
        return Mismatch(row, "row", recorded[row][0], None, told)
    return None
