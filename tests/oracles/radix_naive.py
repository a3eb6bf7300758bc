"""SGLang's radix cache in the plainest way: explicit tokens, no extents, every search by scanning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvsim.core import Request

Token = tuple[object, ...]


def tokens_of(request: Request) -> list[Token]:
    """Every token of prompt and answer, spelt out; equal exactly where the trace says so."""
    width, ids = request.hash_block, request.hash_ids or []
    total = request.prompt_tokens + request.output_tokens
    named = min(request.prompt_tokens, width * len(ids))
    return [
        (width, ids[at // width], at % width) if at < named else ("own", request.row, at)
        for at in range(total)
    ]


class Run:
    """Tokens that are cached, split and evicted as one."""

    def __init__(self, tokens: list[Token], parent: Run | None, used: int) -> None:
        self.tokens = tokens
        self.parent = parent
        self.children: list[Run] = []
        self.used = used
        self.locked = False


class NaiveRadix:
    """A cache of ``capacity`` tokens, driven with one request after the other."""

    def __init__(self, capacity: int, page_size: int) -> None:
        self.capacity = capacity
        self.page = page_size
        self.root = Run([], None, 0)
        self.now = 0

    def resident(self) -> int:
        """Cached tokens, counted."""
        return sum(len(run.tokens) for run in self.runs())

    def runs(self) -> Iterator[Run]:
        """All runs but the root."""
        stack = list(self.root.children)
        while stack:
            run = stack.pop()
            yield run
            stack.extend(run.children)

    def walk(self, tokens: list[Token]) -> tuple[Run, list[Token]]:
        """Follow the tokens, mark what they touch as used, split where they leave; what is left."""
        self.now += 1
        run, rest = self.root, tokens[: len(tokens) // self.page * self.page]
        while rest:
            first = rest[: self.page]
            child = next((c for c in run.children if c.tokens[: self.page] == first), None)
            if child is None:
                break
            child.used = self.now
            same = self.common(child.tokens, rest)
            run, rest = child, rest[same:]
            if same < len(child.tokens):
                return self.split(child, same), rest
        return run, rest

    def common(self, ours: list[Token], theirs: list[Token]) -> int:
        """Equal tokens at the start, in full pages."""
        same = 0
        while same < min(len(ours), len(theirs)) and ours[same] == theirs[same]:
            same += 1
        return same // self.page * self.page

    def split(self, run: Run, at: int) -> Run:
        """Cut the front off a run."""
        assert run.parent is not None
        front = Run(run.tokens[:at], run.parent, self.now)
        front.children = [run]
        run.parent.children[run.parent.children.index(run)] = front
        run.tokens, run.parent = run.tokens[at:], front
        return front

    def evict(self, tokens: int) -> None:
        """Drop the least recently used leaf, again and again, until ``tokens`` are gone."""
        while tokens > 0:
            leaves = [run for run in self.runs() if not run.children and not run.locked]
            if not leaves:
                return
            oldest = min(leaves, key=lambda run: run.used)
            assert oldest.parent is not None
            oldest.parent.children.remove(oldest)
            tokens -= len(oldest.tokens)

    def lock(self, run: Run | None, locked: bool) -> None:
        """Keep the path to a run from eviction, or no longer."""
        while run is not None:
            run.locked = locked
            run = run.parent

    def serve(self, request: Request) -> tuple[int, int, int, int, int, int]:
        """Match, lock, evict, insert, unlock: one row of the recorded decisions."""
        tokens = tokens_of(request)
        run, missed = self.walk(tokens[: request.prompt_tokens])
        hit = request.prompt_tokens // self.page * self.page - len(missed)
        self.lock(run, True)
        self.evict(len(tokens) - hit - (self.capacity - self.resident()))
        fits = len(tokens) - hit <= self.capacity - self.resident()
        if fits:
            last, rest = self.walk(tokens)
            if rest:
                last.children.append(Run(rest, last, self.now))
        self.lock(run, False)
        return (
            request.row,
            request.prompt_tokens,
            request.output_tokens,
            hit,
            int(fits),
            self.resident(),
        )


def naive_replay(
    requests: Iterable[Request], capacity: int, page_size: int
) -> list[tuple[int, int, int, int, int, int]]:
    """The rows of ``NaiveRadix`` for a whole trace."""
    cache = NaiveRadix(capacity, page_size)
    return [cache.serve(request) for request in requests]
