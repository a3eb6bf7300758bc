"""SGLang's scheduler over its radix cache, token by token and iteration by iteration.

Written from the rules alone: explicit tokens, every search by scanning, the ratio lowered step by
step. It shares no code with kvsim's scheduler or memory. Slow on purpose.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf

from kvsim.core import BatchShape, Request, picoseconds
from kvsim.protocols import CostModel
from tests.oracles.radix_naive import Run, Token, tokens_of
from tests.oracles.replay import Seen


@dataclass(eq=False)
class Live:
    """A request that waits or runs."""

    request: Request
    arrival: int
    spelt: list[Token]
    """All tokens that it will ever have."""
    known: int
    computed: int = 0
    room: int = 0
    """Tokens that it has slots for."""
    node: Run | None = None
    generated: int = 0
    scheduled: int | None = None
    first_token: int | None = None
    cached: int = 0
    preemptions: int = 0
    before: int = 0
    """Prompt tokens that had been computed when it began to wait."""


class Memory:
    """Slots: those of the tree's runs, and those that running requests own besides."""

    def __init__(self, slots: int, page: int) -> None:
        self.page = page
        self.total = slots // page * page
        self.root = Run([], None, 0)
        self.locks: dict[Run, int] = {}
        self.users: list[Live] = []
        self.clock = self.evicted = 0

    def runs(self) -> list[Run]:
        found, stack = [], list(self.root.children)
        while stack:
            run = stack.pop()
            found.append(run)
            stack += run.children
        return found

    def paged(self, tokens: int) -> int:
        return -(-tokens // self.page) * self.page

    def depth(self, run: Run | None) -> int:
        return 0 if run is None else len(run.tokens) + self.depth(run.parent)

    def owned(self, live: Live) -> int:
        return self.paged(live.room) - self.depth(live.node)

    def unused(self) -> int:
        used = sum(len(run.tokens) for run in self.runs()) + sum(map(self.owned, self.users))
        return self.total - used

    def evictable(self) -> int:
        return sum(len(run.tokens) for run in self.runs() if not self.locks.get(run))

    def available(self) -> int:
        return self.unused() + self.evictable()

    def follow(self, tokens: list[Token], *, mark: bool) -> tuple[Run, int]:
        """The run in which the tokens leave the tree, and how many of them, in pages, are there."""
        run, at = self.root, 0
        end = len(tokens) // self.page * self.page
        self.clock += mark
        while at < end:
            key = tokens[at : at + self.page]
            child = next((c for c in run.children if c.tokens[: self.page] == key), None)
            if child is None:
                break
            if mark:
                child.used = self.clock
            same = 0
            while (
                same < min(len(child.tokens), end - at) and child.tokens[same] == tokens[at + same]
            ):
                same += 1
            same = same // self.page * self.page
            run, at = child, at + same
            if same < len(child.tokens):
                if mark:
                    run = self.split(child, same)
                break
        return run, at

    def split(self, run: Run, at: int) -> Run:
        assert run.parent is not None
        front = Run(run.tokens[:at], run.parent, run.used)
        front.children = [run]
        siblings = run.parent.children
        siblings[siblings.index(run)] = front
        run.tokens, run.parent = run.tokens[at:], front
        self.locks[front] = self.locks.get(run, 0)
        return front

    def lock(self, run: Run | None, change: int) -> None:
        while run is not None and run is not self.root:
            self.locks[run] = self.locks.get(run, 0) + change
            run = run.parent

    def locked_part(self, tokens: list[Token]) -> int:
        """Of what is in the tree of the tokens, how much running requests hold."""
        run, at = self.follow(tokens, mark=False)
        held: Run | None = run
        while held is not None and held is not self.root and not self.locks.get(held):
            held = held.parent
        return min(at, self.depth(held))

    def take(self, slots: int) -> None:
        short = slots - self.unused()
        while short > 0:
            leaves = [r for r in self.runs() if not r.children and not self.locks.get(r)]
            oldest = min(leaves, key=lambda run: run.used)
            assert oldest.parent is not None
            oldest.parent.children.remove(oldest)
            short -= len(oldest.tokens)
            self.evicted += len(oldest.tokens) // self.page

    def admit(self, live: Live, tokens: int) -> None:
        live.node, hit = self.follow(live.spelt[: live.known - 1], mark=True)
        self.lock(live.node, 1)
        self.take(self.paged(hit + tokens) - hit)
        live.room = hit + tokens
        self.users.append(live)

    def cache(self, live: Live, tokens: int) -> None:
        """The first tokens enter the tree, in pages, and the request holds them there."""
        end = tokens // self.page * self.page
        if end <= self.depth(live.node):
            return
        run, at = self.follow(live.spelt[:end], mark=True)
        if at < end:
            leaf = Run(live.spelt[at:end], run, self.clock)
            run.children.append(leaf)
            run = leaf
        self.lock(run, 1)
        self.lock(live.node, -1)
        live.node = run

    def extend(self, live: Live, tokens: int) -> bool:
        """A prompt whose first part is computed gets room for the next."""
        more = self.paged(tokens) - self.paged(live.room)
        shared = self.locked_part(live.spelt[: live.room // self.page * self.page])
        if more > self.available() + max(0, shared - self.depth(live.node)):
            return False
        self.cache(live, live.room)
        self.take(more)
        live.room = tokens
        return True

    def release(self, live: Live, *, keep: bool) -> None:
        if keep:
            self.cache(live, live.computed)
        self.users.remove(live)
        self.lock(live.node, -1)
        live.node, live.room = None, 0


@dataclass(frozen=True)
class Limits:
    slots: int
    page: int
    seats: int
    chunk: int
    allowed: int
    conservativeness: float = 1.0
    policy: str = "fcfs"


class PlainSGLang:
    """Serves a list of requests on one engine."""

    def __init__(self, requests: list[Request], limits: Limits, cost: CostModel) -> None:
        self.limits, self.cost = limits, cost
        self.memory = Memory(limits.slots, limits.page)
        self.pending = deque(
            Live(r, picoseconds(r.arrival or 0), tokens_of(r), r.prompt_tokens) for r in requests
        )
        self.waiting: list[Live] = []
        self.decoding: list[Live] = []
        self.chunked: Live | None = None
        self.full = self.gone = False
        self.top = min(0.7 * limits.conservativeness, 1.0)
        self.reset()
        self.retractions = self.computed = 0
        self.seen: list[Seen] = []

    def reset(self) -> None:
        self.base, self.falls = self.top, 0

    @property
    def ratio(self) -> float:
        low = self.top * 0.14
        return (
            max(self.base - self.falls * ((self.top - low) / 600), low) if self.falls else self.base
        )

    def run(self) -> list[Seen]:
        now = 0
        while self.pending or self.waiting or self.decoding or self.chunked:
            while self.pending and self.pending[0].arrival <= now:
                self.wait(self.pending.popleft())
            if not (self.waiting or self.decoding or self.chunked):
                self.reset()
                now = self.pending[0].arrival
                continue
            now = self.iterate(now)
        return self.seen

    def wait(self, live: Live) -> None:
        live.before = self.computed
        self.waiting.append(live)

    def sort(self) -> None:
        """Order the queue by what is cached, and let one compute what several share."""
        if self.limits.policy == "fcfs" or len(self.waiting) > 128:
            return
        first: list[list[Token]] = []
        ranks: dict[Live, tuple[float, int]] = {}
        for live in self.waiting:
            _, hit = self.memory.follow(live.spelt[: live.known - 1], mark=False)
            start = live.spelt[: live.known][:32]
            later = hit <= 32 and len(start) == 32 and start in first
            if hit <= 32 and not later:
                first.append(start)
            missing = live.request.prompt_tokens - hit
            if self.limits.policy == "lpm":
                rank = (float(-hit), 0)
            else:
                waited = self.computed - live.before
                rank = (-waited / missing if missing > 0 else -inf, live.request.row)
            ranks[live] = (inf, rank[1]) if later else rank
        self.waiting.sort(key=ranks.__getitem__)

    def iterate(self, now: int) -> int:
        prompts = self.prefill(now)
        if not prompts and self.decode_batch():
            now += self.cost.time(self.shape_of_decodes())
            self.finish_decodes(now)
            return now
        prompts = prompts or self.prefill(now)
        now += self.cost.time(self.shape_of(prompts))
        self.finish_prompts(prompts, now)
        return now

    def allowance(self, live: Live) -> int:
        return min(max(self.limits.allowed - live.generated, 0), 4096)

    def remaining(self, promised: int) -> float:
        expected = sum(self.allowance(live) for live in self.decoding)
        return self.memory.available() - promised - self.ratio * expected

    def prefill(self, now: int) -> list[tuple[Live, int]]:
        memory, page = self.memory, self.limits.page
        work: list[tuple[Live, int]] = []
        budget, promised = self.limits.chunk, 0
        if self.waiting and (self.chunked or not self.full):
            self.sort()
        if self.chunked is not None:
            live, left = self.chunked, int(max(0, self.remaining(0)))
            tokens = min(live.known - live.computed, budget, left or budget)
            if memory.extend(live, live.computed + tokens):
                work.append((live, tokens))
                self.computed += tokens
                whole = live.computed + tokens == live.known
                self.chunked = None if whole else live
                promised += page + (self.allowance(live) if whole else 0)
                budget -= memory.paged(tokens)
        while self.waiting and budget > 0 and not self.full:
            live = self.waiting[0]
            _run, hit = memory.follow(live.spelt[: live.known - 1], mark=False)
            missing = live.known - hit
            tokens = missing
            if memory.paged(missing) > budget:
                tokens = (hit + budget) // page * page - hit
            if tokens <= 0:
                break
            seated = (
                len(self.decoding)
                + (self.chunked is not None)
                + sum(1 for one, _ in work if one is not self.chunked)
            )
            idle = hit - memory.locked_part(live.spelt[: live.known - 1])
            need = missing + self.allowance(live) + page
            if seated == self.limits.seats or (need >= self.remaining(promised) - idle and seated):
                self.full = True
                break
            self.waiting.pop(0)
            if live.scheduled is None:
                live.scheduled, live.cached = now, hit
            live.computed = hit
            memory.admit(live, tokens)
            work.append((live, tokens))
            self.computed += tokens
            whole = tokens == missing
            self.chunked = None if whole else live
            promised += page + (self.allowance(live) if whole else 0)
            budget -= memory.paged(tokens)
            self.full = self.remaining(promised) <= 0
        return work

    def decode_batch(self) -> bool:
        """Make room for a token of every answer; whether any is left to decode."""
        if self.gone:
            self.gone = self.full = False
        if not self.decoding:
            return False
        if self.needed() <= self.memory.available():
            self.take_tokens()
            self.falls += 1
            return True
        while self.decoding and self.needed() > self.memory.available():
            self.retract()
        decoded = sum(live.generated for live in self.decoding)
        allowed = self.limits.allowed * len(self.decoding)
        self.base = min(1.0, (decoded + 20 * len(self.decoding)) / (allowed + 1))
        self.falls, self.full = 0, False
        self.take_tokens()
        return bool(self.decoding)

    def growing(self) -> list[Live]:
        return [live for live in self.decoding if live.computed % self.limits.page == 0]

    def needed(self) -> int:
        return self.limits.page * len(self.growing())

    def take_tokens(self) -> None:
        self.memory.take(self.needed())
        for live in self.decoding:
            live.room = live.computed + 1

    def retract(self) -> None:
        self.retractions += 1
        if len(self.decoding) == 1 and self.chunked is not None:
            victim, self.chunked = self.chunked, None
        else:
            order = sorted(
                self.decoding,
                key=lambda live: (live.generated, -live.request.prompt_tokens),
                reverse=True,
            )
            victim = order[-1]
            self.decoding.remove(victim)
        prompt_only = victim.generated == 0 or victim.computed < victim.known - 1
        self.memory.release(victim, keep=prompt_only)
        victim.computed = 0
        victim.preemptions += 1
        self.wait(victim)

    def shape_of(self, work: list[tuple[Live, int]]) -> BatchShape:
        return BatchShape(
            0,
            0,
            len(work),
            sum(new for _, new in work),
            sum(live.computed for live, _ in work),
            sum(new * live.computed + new * (new + 1) // 2 for live, new in work),
            sum(live.computed + new == live.known for live, new in work),
            prompts=tuple((new, live.computed) for live, new in work),
        )

    def shape_of_decodes(self) -> BatchShape:
        reads = [live.computed for live in self.decoding]
        return BatchShape(
            len(reads), sum(reads), sampled=len(reads), context_squares=sum(r * r for r in reads)
        )

    def token(self, live: Live, now: int) -> bool:
        """One more token is known; whether it was the last."""
        live.known += 1
        live.generated += 1
        if live.first_token is None:
            live.first_token = now
        return live.generated == live.request.output_tokens

    def finish_prompts(self, work: list[tuple[Live, int]], now: int) -> None:
        ended = []
        for live, new in work:
            live.computed += new
            if live.computed < live.known:
                continue
            if self.token(live, now):
                ended.append(live)
            else:
                self.memory.cache(live, live.computed)
                self.decoding.append(live)
        self.full = self.full and not ended
        self.end(ended, now)

    def finish_decodes(self, now: int) -> None:
        ended = []
        for live in list(self.decoding):
            live.computed += 1
            if self.token(live, now):
                ended.append(live)
                self.decoding.remove(live)
        self.gone = self.gone or bool(ended)
        self.end(ended, now)

    def end(self, ended: list[Live], now: int) -> None:
        for live in ended:
            self.memory.release(live, keep=True)
            self.seen.append(
                Seen(
                    live.request.row,
                    live.scheduled,
                    live.first_token,
                    now,
                    live.cached,
                    live.preemptions,
                )
            )
