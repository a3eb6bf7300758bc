"""The scheduler of vLLM's V1 engine: one loop, a token budget, chunked prefill."""

from __future__ import annotations

from kvsim.core import Sequence
from kvsim.errors import ConfigError
from kvsim.protocols import Allocator, Batch, Outcome, Preemption, VictimRule
from kvsim.scheduling.admitting import Limits
from kvsim.scheduling.growing import Growing

UNBOUNDED = 1 << 62


class Chunked(Growing):
    """Running requests first, then waiting ones in order of arrival, within a budget of tokens.

    A decode costs one token of the budget, a prompt as many as are left (its chunk). Without room
    for a running sequence the last one (or what ``victim`` says) is preempted: it goes to the front
    of the queue and later recomputes prompt and generated tokens (or what ``preemption`` says). A
    step that preempted admits nobody.
    A sequence is admitted only if all its known tokens fit now. Source: vLLM 0.23.0
    ``v1/core/sched/scheduler.py``; Sarathi-Serve (OSDI 2024) section 4.

    While nobody can be admitted, finish or run out of room, iterations repeat, and up to ``steps``
    of them form one batch (``leaps``). Of beams, one is dropped for a fork of another in a share
    ``beam_turnover`` of the steps (:class:`kvsim.scheduling.turnover.Turnover`).
    """

    def __init__(
        self,
        allocator: Allocator,
        preemption: Preemption | None = None,
        *,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int = 8192,
        long_prefill_token_threshold: int = 0,
        watermark: float = 0.0,
        victim: VictimRule | None = None,
        beam_turnover: float = 1.0,
        seed: int = 0,
        leaps: bool = True,
    ) -> None:
        if not 0 <= beam_turnover <= 1:
            raise ConfigError(f"beam_turnover is {beam_turnover}; accepted: a share from 0 to 1")
        if max_num_batched_tokens < max_num_seqs:
            raise ConfigError(
                f"max_num_batched_tokens is {max_num_batched_tokens}, less than max_num_seqs "
                f"({max_num_seqs}): every running sequence needs one token a step"
            )
        super().__init__(
            allocator,
            Limits(
                max_num_seqs,
                max_num_batched_tokens,
                long_prefill_token_threshold or max_num_batched_tokens,
                round(watermark * allocator.total_slots),
            ),
            victim=victim,
            preemption=preemption,
            beam_turnover=beam_turnover,
            seed=seed,
        )
        self._longest_leap = UNBOUNDED if leaps else 1
        self._deferred = False  # the batch in flight takes its memory when it ends
        self._computing: list[Sequence] = []  # whose prompts are in a batch not committed yet

    @property
    def _expects(self) -> bool:
        """Whether KV is on its way to somebody who waits."""
        return False

    def schedule(self, now: int) -> Batch | None:
        """Leap while nothing can change, else decide one iteration."""
        if not self._running and not self._waiting:
            return None
        return (None if self._ending else self._leap()) or self._iteration(now)

    # Leaps: iterations in which nobody joins.

    def _leap(self) -> Batch | None:
        """Iterations that repeat as they are: decodes, with at most one prompt's full chunks."""
        clock, prefilling = self._clock, self._prefilling
        longest = self._groups.longest(self._longest_leap) if self._present else self._longest_leap
        left = self._budget - clock.decodes
        closed = (self._blocked and not prefilling) or len(self._running) == self._max_seqs
        if not prefilling:
            if not clock.decodes or (self._waiting and not closed):
                return None
            return self._decode_leap(longest, closed)
        chunk = min(left, self._longest_chunk)
        if len(prefilling) > 1 or chunk < 1 or (self._waiting and chunk < left and not closed):
            return None
        return self._chunk_leap(prefilling[0], chunk, longest, closed or chunk == left)

    def _decode_leap(self, longest: int, closed: bool) -> Batch | None:
        clock = self._clock
        steps = min(clock.steps_to_finish(), longest)
        if not steps or not (steps := self._allocator.room(steps)):
            return None
        return self._launch(Batch(clock.shape(), steps, not closed or self._passed, ()))

    def _chunk_leap(
        self, sequence: Sequence, chunk: int, longest: int, closed: bool
    ) -> Batch | None:
        clock = self._clock
        rest = sequence.num_tokens - sequence.num_computed
        steps = min((rest - 1) // chunk, longest)
        if clock.decodes:
            steps = min(steps, clock.steps_to_finish())
        if not steps or not (steps := self._allocator.room(steps, sequence, chunk)):
            return None
        prompts = [(sequence, chunk)]
        return self._launch(Batch(clock.shape(prompts), steps, not closed, prompts))

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
        if self._present:
            self._branch(now)
        budget = self._continue(prompts, now)
        # An iteration without work takes no time, unless it comes behind one that is in flight.
        idle = not prompts and not self._clock.decodes and not self._clock.unseen
        if preemptions == self.preemptions or idle:
            self._admit(prompts, budget, now)
        if not prompts and not self._clock.decodes:
            due = self._ending or self._expects or self._clock.unseen
            assert due, "requests wait, yet nothing can run"
            return None
        self._computing = [sequence for sequence, _ in prompts]
        stall, self._stall = self._stall, 0
        return Batch(self._clock.shape(prompts), 1, False, prompts, stall)

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
                for one in self._groups.ready(sequence) if sequence.group else (sequence,):
                    answered.append(one)
                    if self._answer(one):
                        ended.append(one)
        ended.sort(key=_order)
        if self._present:
            self._groups.end(ended)
        return Outcome(ended, answered)

    def _answer(self, sequence: Sequence) -> bool:
        """A prompt is complete and yields a token; True if that was the last one."""
        if sequence in self._prefilling:
            self._prefilling.remove(sequence)
        self._blocked = False  # a prompt that is in the cache now may be what the head shares
        if super()._answer(sequence):
            return True
        if sequence.group is not None and not sequence.group.forked:
            self._groups.forking.append(sequence)
        return False

    def linger(self, outcome: Outcome) -> None:
        """Go on before the outcome is seen: who ends with it holds seat and memory until then.

        The step in flight was scheduled before what it computes of a decoder had been sampled, so a
        decoder that loses its memory leaves that token unhashed.
        """
        self._clock.unseen = 1
        for sequence in outcome.ended:
            if sequence not in outcome.answered:
                self._allocator.leave(sequence, sequence.num_computed)
                sequence.unhashed = 1
        self._ending.update(outcome.ended)

    def deliver(self, outcome: Outcome, now: int) -> list[Sequence]:
        """The tokens of a committed batch are seen; returns who finished with it."""
        self._clock.unseen = 0
        for sequence in outcome.ended:
            sequence.unhashed = 0
        for sequence in outcome.answered:
            self._see_token(sequence, now)
        return self._groups.served(outcome.ended) if self._groups.met else outcome.ended

    def retire(self, finished: list[Sequence]) -> None:
        """Give back the memory of finished sequences, in their order."""
        for sequence in (*self._groups.spent(), *finished) if self._groups.met else finished:
            self._ending.discard(sequence)
            if sequence.order < 0:
                continue  # preempted with its last token in flight, or gone with its group
            del self._running[sequence.order]
            self._allocator.free(sequence, sequence.num_computed, finished=True)
            if sequence.group is not None:
                sequence.order = -1
            self._blocked = False

    def decoding(self) -> list[Sequence]:
        """Sequences that the batch in flight decodes, in running order."""
        idle = {*self._prefilling, *self._ending, *self._computing, *self._groups.idle()}
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
