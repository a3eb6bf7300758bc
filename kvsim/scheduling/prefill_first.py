"""The scheduler of SGLang: prompts before decodes, and admission by what answers may still need."""

from __future__ import annotations

from collections import deque
from math import floor

from kvsim.core import Sequence
from kvsim.errors import ConfigError
from kvsim.protocols import Allocator, Batch, Standing
from kvsim.scheduling.chunked import UNBOUNDED
from kvsim.scheduling.new_token_ratio import NewTokenRatio
from kvsim.scheduling.orders import ORDERS, Policy
from kvsim.scheduling.roster import Roster
from kvsim.scheduling.running import Running
from kvsim.scheduling.victims.fewest_generated import FewestGenerated

MOST_EXPECTED = 4096
"""Tokens of one answer that admissions look ahead at most."""


class PrefillFirst(Roster):
    """Whoever waits and fits is computed, alone; only then do the running decode.

    A prompt is admitted, in the order of ``schedule_policy``, if its missing tokens, its whole allowance for an answer
    and one page are fewer than what is free or evictable, less a share (the new-token ratio) of what
    each running answer may still need. One that does not fit closes the batch until a sequence ends.
    A prompt longer than the budget is cut at a page, and nothing decodes before its last chunk is
    computed. Without room for the next token the answers with the fewest tokens are retracted, of
    equal ones the longest prompt, and go to the end of the queue; one answer always stays.

    ``max_num_batched_tokens`` is SGLang's ``chunked_prefill_size``. ``max_new_tokens``: the answer's
    length that every client allows, which no trace tells. What SGLang would not survive is survived:
    a request that fits the empty pool, but not its allowance, runs alone; a chunk without room waits
    while others decode; a prompt gives way to the last answer.
    Source: SGLang 0.5.23 ``managers/schedule_policy.py`` (``PrefillAdder``), ``scheduler.py``
    (``get_next_batch_to_run``), ``schedule_batch.py`` (``retract_decode``); without overlap,
    priorities or mixed chunks. Orders: :mod:`kvsim.scheduling.orders`.
    """

    widest = 1
    """It forks nothing."""

    _waiting: deque[Sequence]

    def __init__(
        self,
        allocator: Allocator,
        *,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int = 8192,
        max_new_tokens: int = 4096,
        schedule_conservativeness: float = 1.0,
        schedule_policy: Policy = "fcfs",
        leaps: bool = True,
    ) -> None:
        page = getattr(allocator, "page_size", None) or getattr(allocator, "block_size", None) or 1
        if max_num_batched_tokens < page:
            raise ConfigError(
                f"max_num_batched_tokens is {max_num_batched_tokens}, less than a page of {page} "
                "tokens, by which prompts are cut"
            )
        if max_new_tokens < 1:
            raise ConfigError(f"scheduler.max_new_tokens is {max_new_tokens}; accepted: 1 or more")
        super().__init__(allocator)
        self._max_seqs = max_num_seqs
        self._budget = max_num_batched_tokens
        self._allowed = max_new_tokens
        self._page = page
        self._longest_leap = UNBOUNDED if leaps else 1
        self._ratio = NewTokenRatio(schedule_conservativeness)
        self._victim = FewestGenerated()
        self._order = ORDERS[schedule_policy]()
        self._answering: dict[int, Sequence] = {}  # those that decode, in the same order
        self._chunked: Sequence | None = None  # running, its prompt cut and not complete
        self._full = False  # somebody was refused, and nobody has gone since
        self._gone = False  # somebody has, which the next decode batch will notice
        self._promised = 0  # tokens that this batch's prompts may need besides those they compute
        self._deferred = False  # the leap in flight takes its memory when it ends
        self._retracted = False  # the batch in flight found no room at first

    def add(self, sequence: Sequence) -> None:
        """A request has arrived."""
        self._order.arrives(sequence)
        self._waiting.append(sequence)

    def schedule(self, now: int) -> Batch | None:
        """Prompts if any can be computed, else decodes."""
        if not self._running and not self._waiting:
            self._ratio.reset()
            return None
        return self._prefill(now) or self._decode(now) or self._prefill(now)

    # Prompts.

    def _prefill(self, now: int) -> Batch | None:
        self._promised = 0
        prompts: list[tuple[Sequence, int]] = []
        if self._waiting and (self._chunked is not None or not self._full):
            self._waiting = self._order.sort(self._waiting, self._allocator.match)
        if self._chunked is not None:
            self._go_on(self._chunked, prompts)
        if self._waiting and not self._full:
            self._admit(prompts, now)
        if not prompts:
            return None
        alone = Running()  # on which nobody decodes
        return Batch(alone.shape(prompts), 1, False, prompts)

    def _go_on(self, sequence: Sequence, prompts: list[tuple[Sequence, int]]) -> None:
        """The next chunk of the prompt that was cut, unless there is no room for it."""
        left = floor(self._left())
        rest = sequence.num_tokens - sequence.num_computed
        tokens = min(rest, self._budget, left if left > 0 else self._budget)
        if self._allocator.grow(sequence, sequence.num_computed + tokens):
            self._compute(sequence, tokens, prompts)

    def _admit(self, prompts: list[tuple[Sequence, int]], now: int) -> None:
        budget = self._budget - sum(self._paged(tokens) for _, tokens in prompts)
        while self._waiting and budget > 0 and not self._full:
            sequence = self._waiting[0]
            match = self._allocator.match(sequence)
            tokens = self._cut(match.tokens, sequence.num_tokens - match.tokens, budget)
            if not tokens:
                return
            spare = self._spare(sequence)
            alone = not self._running
            if len(self._running) == self._max_seqs or not (
                self._allocator.admit(sequence, match, match.tokens + tokens, spare=spare)
                or (alone and self._allocator.admit(sequence, match, match.tokens + tokens))
            ):
                self._full = True
                return
            self._waiting.popleft()
            self._start(sequence, match.tokens, now)
            self._compute(sequence, tokens, prompts)
            budget -= self._paged(tokens)
            self._full = self._left() <= 0

    def _cut(self, start: int, tokens: int, budget: int) -> int:
        """How many of a prompt's missing tokens the budget lets through: all, or whole pages."""
        if self._paged(tokens) <= budget:
            return tokens
        return max(0, (start + budget) // self._page * self._page - start)

    def _spare(self, sequence: Sequence) -> int:
        """Slots that must stay free besides the sequence's known tokens, for it to be admitted.

        The allocator rounds these tokens up to pages, which the rule does not.
        """
        padding = self._paged(sequence.num_tokens) - sequence.num_tokens
        aside = floor(self._set_aside()) + self._promised + 1
        return aside + self._allowance(sequence.generated) + self._page - padding

    def _compute(
        self, sequence: Sequence, tokens: int, prompts: list[tuple[Sequence, int]]
    ) -> None:
        """A prompt that has room for ``tokens`` more is part of the batch."""
        prompts.append((sequence, tokens))
        self._order.computes(tokens)
        whole = sequence.num_computed + tokens == sequence.num_tokens
        self._chunked = None if whole else sequence
        self._promised += self._page + (self._allowance(sequence.generated) if whole else 0)

    def _paged(self, tokens: int) -> int:
        return -(-tokens // self._page) * self._page

    # What answers may need.

    def _left(self) -> float:
        """Slots that nobody holds or is expected to need."""
        unheld = self._allocator.total_slots - self._allocator.held_slots
        return unheld - self._promised - self._set_aside()

    def _set_aside(self) -> float:
        """Slots that the decoding are expected to need."""
        answers = self._answering.values()
        return self._ratio.value * sum(self._allowance(self._generated(one)) for one in answers)

    def _allowance(self, generated: int) -> int:
        """Tokens that an answer may still have, as far as admissions look."""
        return min(max(self._allowed - generated, 0), MOST_EXPECTED)

    def _generated(self, sequence: Sequence) -> int:
        return sequence.generated + self._clock.step - sequence.start_step

    # Decodes.

    def _decode(self, now: int) -> Batch | None:
        if self._gone:
            self._gone = self._full = False
        steps = self._steps()
        self._retracted = self._clock.decodes > 0 and not steps
        if self._retracted:
            self._retract(now)
            steps = 1
        if not self._clock.decodes:
            return None
        self._deferred = steps > 1
        if not self._deferred:
            self._allocator.advance(1)
        return Batch(self._clock.shape(), steps, not self._full, ())

    def _steps(self) -> int:
        """Iterations that can follow one another: until somebody may be admitted, or ends."""
        if not self._clock.decodes:
            return 0
        tries = self._chunked is not None or (self._waiting and not self._full)
        longest = 1 if tries else self._longest_leap
        return self._allocator.room(min(self._clock.steps_to_finish(), longest))

    def _retract(self, now: int) -> None:
        """Take the room of answers until the others can go on, and expect longer ones from now on."""
        while self._clock.decodes and not self._allocator.room(1):
            self._preempt(self._chosen(), now)
        generated = [self._generated(one) for one in self._answering.values()]
        self._ratio.estimate(sum(generated), len(generated), len(generated) * self._allowed)
        self._full = False

    def _chosen(self) -> Sequence:
        """The answer with the fewest tokens; in place of the last one the prompt that was cut."""
        if self._clock.decodes == 1 and self._chunked is not None:
            return self._chunked
        return max(
            self._answering.values(),
            key=lambda one: (self._victim.rank(self._standing(one)), one.order),
        )

    def _standing(self, sequence: Sequence) -> Standing:
        return Standing(sequence, self._clock.computed(sequence), self._generated(sequence))

    def _preempt(self, sequence: Sequence, now: int) -> None:
        if sequence is self._chunked:
            self._chunked = None
        else:
            self._clock.leave(sequence)
            del self._answering[sequence.order]
            sequence.last_token = now
        del self._running[sequence.order]
        self._allocator.free(sequence, sequence.num_computed, finished=False)
        sequence.preempt()
        self.preemptions += 1
        self.add(sequence)

    # Completion.

    def complete(self, batch: Batch, steps: int, now: int) -> list[Sequence]:
        """Apply the iterations; returns who finished, in running order, memory still held."""
        if batch.prompts:
            ended = [one for one, tokens in batch.prompts if self._ends(one, tokens, now)]
            self._full = self._full and not ended
            return ended
        if self._deferred:
            self._allocator.advance(steps)
        if not self._retracted:
            self._ratio.fall(steps)
        ended = self._clock.advance(steps)
        for sequence in ended:
            del self._answering[sequence.order]
        self._gone = self._gone or bool(ended)
        return ended

    def _ends(self, sequence: Sequence, tokens: int, now: int) -> bool:
        """A prompt has ``tokens`` more computed; whether that completes all that was asked for."""
        sequence.num_computed += tokens
        if sequence.num_computed < sequence.num_tokens:
            return False
        self._see_token(sequence, now)
        if self._answer(sequence):
            return True
        self._answering[sequence.order] = sequence
        return False

    def retire(self, finished: list[Sequence]) -> None:
        """Give back the memory of finished sequences, in their order."""
        for sequence in finished:
            del self._running[sequence.order]
            self._allocator.free(sequence, sequence.num_computed, finished=True)

    def check(self) -> None:
        """Running and waiting are disjoint; the decode clock counts all but the prompt that was cut."""
        decoding = self._answering.values()
        assert all(one.order == order for order, one in self._running.items())
        assert not {id(one) for one in self._running.values()} & {id(one) for one in self._waiting}
        assert len(self._running) <= self._max_seqs
        assert self._clock.decodes == len(decoding) == len(self._running) - bool(self._chunked)
        assert self._clock.context_tokens == sum(map(self._clock.computed, decoding))
