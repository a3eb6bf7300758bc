"""The plain loop: vLLM's scheduler and block pool, block by block and iteration by iteration.

Written from the rules alone and sharing no code with kvsim's schedulers or caches, so that equality
with it means something. Slow on purpose.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from kvsim.core import BatchShape, Request, picoseconds
from kvsim.protocols import CostModel


@dataclass(eq=False)
class Live:
    """A request being served, with its block table."""

    request: Request
    arrival: int
    tokens: int = 0
    computed: int = 0
    table: list[int] = field(default_factory=list)
    scheduled: int | None = None
    first_token: int | None = None
    finished: int | None = None
    cached: int = 0
    preemptions: int = 0
    decodes: bool = False
    """It has given a token since it was last admitted."""

    def content(self, position: int) -> object:
        """What distinguishes the token at a position from other tokens."""
        request, ids = self.request, self.request.hash_ids or []
        described = min(request.prompt_tokens, len(ids) * request.hash_block)
        if position < described:
            return (ids[position // request.hash_block], position % request.hash_block)
        return (self, position)


class Blocks:
    """A pool of blocks: an ordered free list, reference counts and a map from hash to blocks."""

    def __init__(self, num_blocks: int, block_size: int, *, prefix_caching: bool = True) -> None:
        self.size = block_size
        self.caching = prefix_caching
        self.free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        self.refs = [0] * num_blocks
        self.hash_of: dict[int, object] = {}
        self.by_hash: dict[object, dict[int, None]] = {}
        self.evictions = 0

    def key(self, live: Live, block: int) -> object:
        return tuple(live.content(t) for t in range((block + 1) * self.size))

    def hit(self, live: Live) -> list[int]:
        blocks: list[int] = []
        for block in range((live.tokens - 1) // self.size):
            same = self.by_hash.get(self.key(live, block))
            if not same:
                break
            blocks.append(next(iter(same)))
        return blocks

    def touch(self, blocks: list[int]) -> None:
        for block in blocks:
            self.free.pop(block, None)
            self.refs[block] += 1

    def take(self) -> int:
        block, _ = self.free.popitem(last=False)
        if block in self.hash_of:
            self.evictions += 1
            key = self.hash_of.pop(block)
            del self.by_hash[key][block]
        self.refs[block] = 1
        return block

    def grow(self, live: Live, tokens: int) -> bool:
        need = -(-tokens // self.size) - len(live.table)
        if need > len(self.free):
            return False
        live.table += [self.take() for _ in range(need)]
        self.cache(live, min(tokens, live.tokens))
        return True

    def cache(self, live: Live, tokens: int) -> None:
        for index in range(tokens // self.size if self.caching else 0):
            block = live.table[index]
            if block not in self.hash_of:
                key = self.hash_of[block] = self.key(live, index)
                self.by_hash.setdefault(key, {})[block] = None

    def release(self, live: Live) -> None:
        for block in reversed(live.table):
            self.refs[block] -= 1
            if not self.refs[block]:
                self.free[block] = None
        live.table = []


@dataclass(frozen=True)
class Limits:
    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    long_prefill_token_threshold: int = 0
    watermark_blocks: int = 0


class PlainLoop:
    """Serves a list of requests on one engine; afterwards ``ended`` holds every request."""

    def __init__(self, requests: list[Request], limits: Limits, cost: CostModel) -> None:
        self.limits = limits
        self.cost = cost
        self.blocks = Blocks(limits.num_blocks, limits.block_size)
        self.pending = deque(Live(r, picoseconds(r.arrival or 0.0)) for r in requests)
        self.waiting: deque[Live] = deque()
        self.running: list[Live] = []
        self.ended: list[Live] = []
        self.boundaries: list[int] = []
        """Ends of iterations, picoseconds."""

    def run(self) -> list[Live]:
        now = 0
        while self.pending or self.waiting or self.running:
            if not self.waiting and not self.running:
                now = max(now, self.pending[0].arrival)
            self.arrive(now)
            work = self.schedule(now)
            now += self.cost.time(self.shape(work))
            self.boundaries.append(now)
            self.complete(work, now)
        return self.ended

    def arrive(self, now: int) -> None:
        while self.pending and self.pending[0].arrival <= now:
            live = self.pending.popleft()
            live.tokens = live.request.prompt_tokens
            self.waiting.append(live)

    def schedule(self, now: int) -> list[tuple[Live, int]]:
        limits, work = self.limits, []
        budget = limits.max_num_batched_tokens
        longest = limits.long_prefill_token_threshold or budget
        preempted = False
        index = 0
        while index < len(self.running) and budget > 0:
            live = self.running[index]
            new = min(live.tokens - live.computed, budget, longest)
            while not self.blocks.grow(live, live.computed + new):
                victim = self.running.pop()
                self.preempt(victim)
                preempted = True
                if victim is live:
                    break
            else:
                work.append((live, new))
                budget -= new
                index += 1
                continue
            break
        while self.waiting and budget > 0 and not preempted:
            if len(self.running) == limits.max_num_seqs:
                break
            live = self.waiting[0]
            hit = self.blocks.hit(live)
            cached = len(hit) * limits.block_size
            new = min(live.tokens - cached, budget, longest)
            idle = sum(1 for block in hit if not self.blocks.refs[block])
            whole = -(-live.tokens // limits.block_size) - len(hit) + idle
            spare = limits.watermark_blocks if self.running else 0
            if whole + spare > len(self.blocks.free):
                break
            self.blocks.touch(hit)
            live.table = list(hit)
            assert self.blocks.grow(live, cached + new)
            if live.scheduled is None:
                live.scheduled, live.cached = now, cached
            live.computed = cached
            self.running.append(self.waiting.popleft())
            work.append((live, new))
            budget -= new
        return work

    def preempt(self, live: Live) -> None:
        self.blocks.release(live)
        live.computed = 0
        live.decodes = False
        live.preemptions += 1
        self.waiting.appendleft(live)

    def shape(self, work: list[tuple[Live, int]]) -> BatchShape:
        decodes = [live for live, _ in work if live.decodes]
        prompts = [(live.computed, new, live) for live, new in work if not live.decodes]
        return BatchShape(
            len(decodes),
            sum(live.computed for live in decodes),
            len(prompts),
            sum(new for _, new, _ in prompts),
            sum(computed for computed, _, _ in prompts),
            sum(new * computed + new * (new + 1) // 2 for computed, new, _ in prompts),
            len(decodes) + sum(computed + new == live.tokens for computed, new, live in prompts),
            sum(live.computed**2 for live in decodes),
            tuple((new, computed) for computed, new, _ in prompts),
        )

    def complete(self, work: list[tuple[Live, int]], now: int) -> None:
        for live, new in work:
            live.computed += new
            if live.computed < live.tokens:
                continue
            live.tokens += 1
            live.decodes = True
            if live.first_token is None:
                live.first_token = now
            if live.tokens == live.request.prompt_tokens + live.request.output_tokens:
                live.finished = now
                self.running.remove(live)
                self.blocks.release(live)
                self.ended.append(live)
