"""vLLM's core loop with two batches in flight, block by block, for iterations of equal length.

Written from ``step_with_batch_queue`` and ``AsyncScheduler`` of vLLM 0.23 and sharing no code with
kvsim's engines, so that equality with it means something. A block is hashed once a step that computes
its last token has been scheduled with that token known, or the token of the step after it is seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from kvsim.core import Request, picoseconds
from tests.oracles.plain_loop import Blocks, Limits, Live


@dataclass(eq=False)
class Ahead(Live):
    """A request whose latest tokens may not be known yet."""

    in_flight: int = 0
    """Tokens that it will have got when the batches in flight have ended."""
    ends: int = 0
    """Tokens that it will have in the end."""


class PlainPipeline:
    """Schedules a batch, launches it, and only then waits for the one before it."""

    def __init__(
        self,
        requests: Iterable[Request],
        limits: Limits,
        step: int,
        *,
        prefix_caching: bool = True,
    ) -> None:
        self.limits, self.step = limits, step
        self.blocks = Blocks(limits.num_blocks, limits.block_size, prefix_caching=prefix_caching)
        self.coming = deque(
            Ahead(
                request,
                picoseconds(request.arrival or 0.0),
                request.prompt_tokens,
                ends=request.prompt_tokens + request.output_tokens,
            )
            for request in requests
        )
        self.waiting: deque[Ahead] = deque()
        self.running: list[Ahead] = []
        self.done: list[Ahead] = []
        self.now = 0

    def run(self) -> list[Ahead]:
        """Serve everything."""
        batches: deque[tuple[list[Ahead], int]] = deque()
        while self.coming or self.waiting or self.running or batches:
            while self.coming and self.coming[0].arrival <= self.now:
                self.waiting.append(self.coming.popleft())
            if self.waiting or self.running:
                batch = self.schedule()
                start = max(self.now, batches[-1][1] if batches else 0)
                sampling = [one for one, _ in batch if one.computed >= one.tokens + one.in_flight]
                for one in sampling:
                    one.in_flight += 1
                batches.append((sampling, start + self.step if batch else start))
                if batch and len(batches) < 2:
                    continue
            elif not batches:
                self.now = self.coming[0].arrival
                continue
            sampled, end = batches.popleft()
            self.now = max(self.now, end)
            self.update(sampled)
        return self.done

    def schedule(self) -> list[tuple[Ahead, int]]:
        """Who computes how many tokens next: those that run, then those that wait."""
        budget, batch, preempted = self.limits.max_num_batched_tokens, [], False
        for one in list(self.running):
            new = self.chunk(one.tokens + one.in_flight - one.computed, budget)
            if one not in self.running or one.tokens + one.in_flight == one.ends or not new:
                continue
            while one in self.running and not self.blocks.grow(one, one.computed + new):
                self.preempt(self.running.pop())
                preempted = True
            if one not in self.running:
                break
            batch.append((one, new))
            budget -= new
        while self.waiting and budget and len(self.running) < self.limits.max_num_seqs:
            new = 0 if preempted else self.admit(self.waiting[0], budget)
            if not new:
                break
            self.running.append(self.waiting.popleft())
            batch.append((self.running[-1], new))
            budget -= new
        for one, new in batch:
            one.computed += new
        return batch

    def chunk(self, tokens: int, budget: int) -> int:
        return min(tokens, self.limits.long_prefill_token_threshold or tokens, budget)

    def admit(self, one: Ahead, budget: int) -> int:
        """Give it blocks for its first chunk if all of it fits; returns the chunk's tokens."""
        hit = self.blocks.hit(one)
        idle = sum(block in self.blocks.free for block in hit)
        size, start = self.blocks.size, len(hit) * self.blocks.size
        if -(-one.tokens // size) - len(hit) + idle > len(self.blocks.free):
            return 0
        self.blocks.touch(hit)
        one.table, one.computed = list(hit), start
        if one.first_token is None:
            one.cached = start  # the last admission before the first token counts
        new = self.chunk(one.tokens - start, budget)
        assert self.blocks.grow(one, start + new)
        return new

    def preempt(self, one: Ahead) -> None:
        self.blocks.release(one)
        one.computed, one.preemptions = 0, one.preemptions + 1
        self.waiting.appendleft(one)

    def update(self, sampled: list[Ahead]) -> None:
        """The tokens of a batch are seen, also those of who was preempted since."""
        for one in sampled:
            one.in_flight -= 1
            one.tokens += 1
            if one in self.running:
                self.blocks.cache(one, one.computed - one.in_flight)
            if one.first_token is None:
                one.first_token = self.now
            if one.tokens == one.ends:
                one.finished = self.now
                self.done.append(one)
                if one in self.running:
                    self.running.remove(one)
                    self.blocks.release(one)
                else:
                    self.waiting.remove(one)
