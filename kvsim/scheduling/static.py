"""Request-level batching: the baseline that iteration-level scheduling replaced."""

from __future__ import annotations

from kvsim.core import BatchShape, Sequence
from kvsim.protocols import Allocator, Batch
from kvsim.scheduling.chunked import UNBOUNDED
from kvsim.scheduling.roster import Roster


class Static(Roster):
    """A batch of waiting requests runs alone until its longest member ends, and returns as one.

    Padding counts: all prompts are computed at the length of the longest, and a member that has
    ended keeps its seat and its memory. Without room to go on, the last member is preempted and
    waits, in front, for a later batch. Source: the baseline of Orca (OSDI 2022) section 2.
    """

    widest = 1
    """A batch that returns as one has no forks."""
    pads = True
    """Its iterations compute more than its requests need."""

    def __init__(
        self, allocator: Allocator, *, max_num_seqs: int = 256, leaps: bool = True
    ) -> None:
        super().__init__(allocator)
        self._max_seqs = max_num_seqs
        self._longest_leap = UNBOUNDED if leaps else 1
        self._padded_context = 0
        self._deferred = False  # the leap in flight takes its memory when it ends

    def add(self, sequence: Sequence) -> None:
        """A request has arrived."""
        self._waiting.append(sequence)

    def schedule(self, now: int) -> Batch | None:
        """Decode the batch in hand, or compute the prompts of the next one."""
        if self._running:
            return self._decode(now)
        return self._prefill(now) if self._waiting else None

    def _prefill(self, now: int) -> Batch:
        self._deferred = False
        prompts: list[tuple[Sequence, int]] = []
        while self._waiting and len(self._running) < self._max_seqs:
            sequence = self._waiting[0]
            match = self._allocator.match(sequence)
            if not self._allocator.admit(sequence, match, sequence.num_tokens):
                break
            del self._waiting[0]
            self._start(sequence, match.tokens, now)
            prompts.append((sequence, sequence.num_tokens - match.tokens))
        assert prompts, "a request waits, yet the empty pool has no room for it"
        count, longest = len(prompts), max(tokens for _, tokens in prompts)
        cached = [sequence.num_computed for sequence, _ in prompts]
        context = sum(cached)
        pairs = context * longest + count * longest * (longest + 1) // 2
        alike = tuple((longest, past) for past in cached)
        shape = BatchShape(0, 0, count, count * longest, context, pairs, count, prompts=alike)
        self._padded_context = context + count * longest
        return Batch(shape, 1, False, prompts)

    def _decode(self, now: int) -> Batch:
        clock = self._clock
        steps = self._allocator.room(min(clock.steps_to_finish(), self._longest_leap))
        self._deferred = steps > 0
        if not steps:
            self._squeeze(now)
            if not self._running:
                return self._prefill(now)
            steps = 1
        members = len(self._running)
        shape = BatchShape(members, self._padded_context, sampled=members)
        return Batch(shape, steps, False, ())

    def _squeeze(self, now: int) -> None:
        """Give each decoding member room for one token, preempting from the end of the batch."""
        for sequence in list(self._running.values()):
            while sequence.order > 0 and sequence.finished is None:
                if self._allocator.grow(sequence, self._clock.computed(sequence) + 1):
                    break
                self._preempt(now)
        self._allocator.advance(1, grown=True)

    def _preempt(self, now: int) -> None:
        """Preempt the last member that has not ended."""
        sequence = next(s for s in reversed(self._running.values()) if s.finished is None)
        del self._running[sequence.order]
        self._clock.leave(sequence)
        self._padded_context -= sequence.num_computed
        self._allocator.free(sequence, sequence.num_computed, finished=False)
        sequence.preempt()
        sequence.last_token = now
        self.preemptions += 1
        self._waiting.appendleft(sequence)

    def complete(self, batch: Batch, steps: int, now: int) -> list[Sequence]:
        """Apply the iterations; returns the whole batch once its last member has ended."""
        if batch.prompts:
            for sequence, _ in batch.prompts:
                self._begin(sequence, now)
        else:
            if self._deferred:
                self._allocator.advance(steps)
            self._padded_context += steps * len(self._running)
            for sequence in self._clock.advance(steps):
                self._end(sequence, now)
        return [] if self._clock.decodes else list(self._running.values())

    def _begin(self, sequence: Sequence, now: int) -> None:
        """Its prompt is computed: it decodes, unless one token was all."""
        sequence.num_computed = sequence.num_tokens
        self._see_token(sequence, now)
        if self._answer(sequence):
            sequence.finished = now

    def _end(self, sequence: Sequence, now: int) -> None:
        """A member has ended: it gains no more tokens, and holds its room till the batch ends."""
        sequence.finished = now
        self._allocator.leave(sequence, sequence.num_computed)

    def retire(self, finished: list[Sequence]) -> None:
        """The batch returns: all its memory comes back."""
        for sequence in finished:
            self._allocator.free(sequence, sequence.num_computed, finished=True)
        if finished:
            self._running.clear()

    def check(self) -> None:
        """The decode clock counts exactly the members that have not ended."""
        alive = [sequence for sequence in self._running.values() if sequence.finished is None]
        assert self._clock.decodes == len(alive)
        assert self._clock.context_tokens == sum(self._clock.computed(s) for s in alive)
        assert len(self._running) <= self._max_seqs
