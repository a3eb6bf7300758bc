"""The scheduler of vLLM's V1 engine: one loop, a token budget, chunked prefill."""

from __future__ import annotations

from collections import deque

from kvsim.core import BatchShape, Sequence
from kvsim.errors import ConfigError
from kvsim.protocols import Allocator, Batch, Outcome
from kvsim.scheduling.running import Running

UNBOUNDED = 1 << 62


class Chunked:
    """Running requests first, then waiting ones in order of arrival, within a budget of tokens.

    A decode costs one token of the budget, a prompt as many as are left (its chunk). Without room
    for a running sequence the last one is preempted: its KV is given up, it goes to the front of
    the queue and later recomputes prompt and generated tokens. A step that preempted admits nobody.
    A sequence is admitted only if all its known tokens fit now. Source: vLLM 0.23.0
    ``v1/core/sched/scheduler.py``; Sarathi-Serve (OSDI 2024) section 4.

    While nobody can be admitted, finish or run out of room, iterations repeat, and up to ``steps``
    of them form one batch (``leaps``).
    """

    def __init__(
        self,
        allocator: Allocator,
        *,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int = 8192,
        long_prefill_token_threshold: int = 0,
        watermark: float = 0.0,
        leaps: bool = True,
    ) -> None:
        if max_num_batched_tokens < max_num_seqs:
            raise ConfigError(
                f"max_num_batched_tokens is {max_num_batched_tokens}, less than max_num_seqs "
                f"({max_num_seqs}): every running sequence needs one token a step"
            )
        self.preemptions = 0
        self.widest = max_num_seqs
        self.gaps: list[int] = []
        self._allocator = allocator
        self._max_seqs = max_num_seqs
        self._budget = max_num_batched_tokens
        self._longest_chunk = long_prefill_token_threshold or max_num_batched_tokens
        self._spare = round(watermark * allocator.total_slots)
        self._longest_leap = UNBOUNDED if leaps else 1
        self._waiting: deque[Sequence] = deque()
        self._running: dict[int, Sequence] = {}  # by order of admission
        self._prefilling: list[Sequence] = []  # running, prompt not complete, in running order
        self._clock = Running()
        self._admitted = 0
        self._blocked = False  # the head of the queue was refused, and no memory came back since
        self._deferred = False  # the batch in flight takes its memory when it ends
        self._ending: set[Sequence] = set()  # running, their last token in flight
        self._computing: list[Sequence] = []  # whose prompts are in a batch not committed yet

    @property
    def waiting_count(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def running_count(self) -> int:
        """Sequences that hold memory."""
        return len(self._running)

    def add(self, sequence: Sequence) -> None:
        """A request has arrived."""
        self._waiting.append(sequence)

    def schedule(self, now: int) -> Batch | None:
        """Leap while nothing can change, else decide one iteration."""
        if not self._running and not self._waiting:
            return None
        return (None if self._ending else self._leap()) or self._iteration(now)

    # Leaps: iterations in which nobody joins.

    def _leap(self) -> Batch | None:
        """Iterations that repeat as they are: decodes, with at most one prompt's full chunks."""
        clock, prefilling = self._clock, self._prefilling
        left = self._budget - clock.decodes
        closed = (self._blocked and not prefilling) or len(self._running) == self._max_seqs
        if not prefilling:
            if not clock.decodes or (self._waiting and not closed):
                return None
            return self._decode_leap(closed)
        chunk = min(left, self._longest_chunk)
        if len(prefilling) > 1 or chunk < 1 or (self._waiting and chunk < left and not closed):
            return None
        return self._chunk_leap(prefilling[0], chunk, closed or chunk == left)

    def _decode_leap(self, closed: bool) -> Batch | None:
        clock = self._clock
        steps = min(clock.steps_to_finish(), self._longest_leap)
        steps = self._allocator.room(steps)
        if not steps:
            return None
        decodes = clock.decodes
        squares = clock.context_squares
        shape = BatchShape(decodes, clock.context_tokens, 0, 0, 0, 0, decodes, squares)
        return self._launch(Batch(shape, steps, not closed, ()))

    def _chunk_leap(self, sequence: Sequence, chunk: int, closed: bool) -> Batch | None:
        clock = self._clock
        rest = sequence.num_tokens - sequence.num_computed
        steps = min((rest - 1) // chunk, self._longest_leap)
        if clock.decodes:
            steps = min(steps, clock.steps_to_finish())
        if not steps or not (steps := self._allocator.room(steps, sequence, chunk)):
            return None
        prompts = [(sequence, chunk)]
        return self._launch(Batch(self._shape(prompts), steps, not closed, prompts))

    def _launch(self, batch: Batch) -> Batch:
        """Take the memory of a single iteration now, that of a leap when its steps are certain."""
        self._deferred = batch.steps > 1
        if not self._deferred:
            self._take(batch, 1)
        return batch

    def _take(self, batch: Batch, steps: int) -> None:
        self._allocator.advance(steps)
        for sequence, tokens in batch.prompts:
            self._allocator.grow(sequence, sequence.num_computed + tokens * steps)

    # Single iterations.

    def _iteration(self, now: int) -> Batch | None:
        self._deferred = False
        preemptions = self.preemptions
        prompts: list[tuple[Sequence, int]] = []
        budget = self._continue(prompts, now)
        idle = not prompts and not self._clock.decodes  # an iteration without work takes no time
        if preemptions == self.preemptions or idle:
            self._admit(prompts, budget, now)
        if not prompts and not self._clock.decodes:
            assert self._ending, "requests wait, yet nothing can run"
            return None
        self._computing = [sequence for sequence, _ in prompts]
        return Batch(self._shape(prompts), 1, False, prompts)

    def _continue(self, prompts: list[tuple[Sequence, int]], now: int) -> int:
        """Make room for all that run; returns what is left of the budget."""
        prefilling = self._prefilling
        last_only = not prefilling or (
            len(prefilling) == 1 and prefilling[0] is next(reversed(self._running.values()))
        )
        if last_only and self._allocator.room(1):
            self._allocator.advance(1)
            budget = self._budget - self._clock.decodes
            return self._grow(list(prefilling), prompts, budget, now)
        budget = self._grow(list(self._running.values()), prompts, self._budget, now)
        self._allocator.advance(1, grown=True)
        return budget

    def _grow(
        self,
        sequences: list[Sequence],
        prompts: list[tuple[Sequence, int]],
        budget: int,
        now: int,
    ) -> int:
        """Give each sequence room for its next tokens, preempting from the end of the running."""
        for sequence in sequences:
            if sequence.order not in self._running:
                break  # preempted, and so are all after it
            if sequence in self._ending:
                continue
            prefills = sequence in self._prefilling
            if prefills:
                chunk = sequence.num_tokens - sequence.num_computed
                tokens = min(chunk, budget, self._longest_chunk)
                target = sequence.num_computed + tokens
            else:
                tokens = 1
                target = self._clock.computed(sequence) + 1
            if not tokens or not self._make_room(sequence, target, now):
                continue
            budget -= tokens
            if prefills:
                prompts.append((sequence, tokens))
        return budget

    def _make_room(self, sequence: Sequence, tokens: int, now: int) -> bool:
        """Preempt the last running until ``sequence`` can grow; False if it was itself the last."""
        while not self._allocator.grow(sequence, tokens):
            if self._preempt(now) is sequence:
                return False
        return True

    def _preempt(self, now: int) -> Sequence:
        _, sequence = self._running.popitem()
        if sequence in self._ending:
            return self._cut_short(sequence)
        if sequence in self._prefilling:
            self._prefilling.remove(sequence)
        else:
            self._clock.leave(sequence)
            sequence.last_token = now
        self._allocator.free(sequence, sequence.num_computed, finished=False)
        sequence.preempt()
        self.preemptions += 1
        self._waiting.appendleft(sequence)
        self._blocked = False
        return sequence

    def _cut_short(self, sequence: Sequence) -> Sequence:
        """Take the memory of a sequence whose last token is in flight; it ends all the same."""
        self._allocator.free(sequence, sequence.num_computed, finished=True)
        sequence.order = -1
        sequence.preemptions += 1
        self.preemptions += 1
        self._blocked = False
        return sequence

    def _admit(self, prompts: list[tuple[Sequence, int]], budget: int, now: int) -> None:
        waiting, running, allocator = self._waiting, self._running, self._allocator
        while waiting and budget > 0 and len(running) < self._max_seqs:
            sequence = waiting[0]
            match = allocator.match(sequence)
            rest = sequence.num_tokens - match.tokens
            tokens = min(rest, budget, self._longest_chunk)
            spare = self._spare if running else 0
            if not allocator.admit(sequence, match, match.tokens + tokens, spare=spare):
                self._blocked = True
                return
            waiting.popleft()
            self._start(sequence, match.tokens, now)
            if tokens < rest:
                self._prefilling.append(sequence)
            prompts.append((sequence, tokens))
            budget -= tokens

    def _start(self, sequence: Sequence, hit: int, now: int) -> None:
        """Make an admitted sequence the last of the running."""
        self._admitted += 1
        sequence.admit(self._admitted, hit, now)
        self._running[sequence.order] = sequence

    def _shape(self, prompts: list[tuple[Sequence, int]]) -> BatchShape:
        decodes = sampled = self._clock.decodes
        tokens = context = pairs = 0
        for sequence, new in prompts:
            cached = sequence.num_computed
            tokens += new
            context += cached
            pairs += new * cached + new * (new + 1) // 2
            sampled += cached + new == sequence.num_tokens
        clock, count = self._clock, len(prompts)
        reads, squares = clock.context_tokens, clock.context_squares
        return BatchShape(decodes, reads, count, tokens, context, pairs, sampled, squares)

    # Completion.

    def complete(self, batch: Batch, steps: int, now: int) -> list[Sequence]:
        """Apply ``steps`` iterations; returns who finished, in running order, memory still held."""
        return self.deliver(self.commit(batch, steps), now)

    def commit(self, batch: Batch, steps: int) -> Outcome:
        """``steps`` iterations are certain to run: count their tokens, which nobody has seen yet."""
        if self._deferred:
            self._take(batch, steps)
        self._computing = []
        ended, answered = self._clock.advance(steps), []
        for sequence, tokens in batch.prompts:
            sequence.num_computed += tokens * steps
            if sequence.num_computed == sequence.num_tokens:
                answered.append(sequence)
                if self._answer(sequence):
                    ended.append(sequence)
        ended.sort(key=_order)
        return Outcome(ended, answered)

    def _answer(self, sequence: Sequence) -> bool:
        """A prompt is complete and yields a token; True if that was the last one."""
        if sequence in self._prefilling:
            self._prefilling.remove(sequence)
        self._blocked = False  # a prompt that is in the cache now may be what the head shares
        sequence.generated += 1
        sequence.num_tokens += 1
        if not self._clock.join(sequence):
            return True
        self._allocator.join(sequence)
        return False

    def linger(self, outcome: Outcome) -> None:
        """Go on before the outcome is seen: who ends with it holds seat and memory until then."""
        for sequence in outcome.ended:
            if sequence not in outcome.answered:
                self._allocator.leave(sequence, sequence.num_computed)
        self._ending.update(outcome.ended)

    def deliver(self, outcome: Outcome, now: int) -> list[Sequence]:
        """The tokens of a committed batch are seen; returns who finished with it."""
        for sequence in outcome.answered:
            gap = sequence.see_token(now)
            if gap is not None:
                self.gaps.append(gap)
        return outcome.ended

    def retire(self, finished: list[Sequence]) -> None:
        """Give back the memory of finished sequences, in their order."""
        for sequence in finished:
            self._ending.discard(sequence)
            if sequence.order < 0:
                continue  # preempted with its last token in flight
            del self._running[sequence.order]
            self._allocator.free(sequence, sequence.num_computed, finished=True)
            self._blocked = False

    def decoding(self) -> list[Sequence]:
        """Sequences that the batch in flight decodes, in running order."""
        idle = {*self._prefilling, *self._ending, *self._computing}
        return [sequence for sequence in self._running.values() if sequence not in idle]

    def check(self) -> None:
        """Running and waiting are disjoint; the decode clock counts exactly the decoders."""
        running, decoding = list(self._running.values()), self.decoding()
        assert all(s.order == order for order, s in self._running.items())
        assert not {id(s) for s in running} & {id(s) for s in self._waiting}
        assert len(running) <= self._max_seqs
        assert self._clock.decodes == len(decoding)
        assert self._clock.context_tokens == sum(self._clock.computed(s) for s in decoding)


def _order(sequence: Sequence) -> int:
    return sequence.order
