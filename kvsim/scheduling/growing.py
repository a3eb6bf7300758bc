"""How the running sequences go on: each needs room for its next tokens, or somebody goes."""

from __future__ import annotations

from kvsim.core import Sequence
from kvsim.scheduling.admitting import Admitting


class Growing(Admitting):
    """Running sequences first: they share memory and budget before anybody is let in.

    Where the last admitted goes, sequences get their room one by one and those at the end make it;
    where anybody may go, who does is decided before anyone has grown.
    """

    def _continue(self, prompts: list[tuple[Sequence, int]], now: int) -> int:
        """Make room for all that run; returns what is left of the budget."""
        if self._present or not self._latest_goes:
            return self._continue_chosen(prompts, now)
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
                tokens = self._chunk_from(sequence.num_computed, sequence, budget)
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
            self._preempt(now)
            if sequence.order not in self._running:
                return False
        return True

    def _continue_chosen(self, prompts: list[tuple[Sequence, int]], now: int) -> int:
        """The same where anybody may have to go."""
        while not self._has_room():
            self._preempt(now)
        self._allocator.advance(1)
        budget = self._budget - self._clock.decodes
        for sequence in list(self._prefilling):
            start = self._begin(sequence)
            tokens = self._chunk_from(start, sequence, budget)
            if tokens and self._allocator.grow(sequence, start + tokens):
                if sequence.group is not None:
                    self._place(sequence, start)
                prompts.append((sequence, tokens))
                budget -= tokens
        return budget

    def _has_room(self) -> bool:
        """Whether all decoders and the first prompt can go on."""
        if not self._prefilling:
            return self._allocator.room(1) > 0
        first = self._prefilling[0]
        start = self._begin(first)
        chunk = self._chunk_from(start, first, self._budget - self._clock.decodes)
        if not chunk:
            return self._allocator.room(1) > 0
        return self._allocator.room(1, first, start - first.num_computed + chunk) > 0

    def _begin(self, sequence: Sequence) -> int:
        """Tokens that a prompt has, or gets back from the host, when it goes on."""
        return sequence.num_computed if sequence.group is None else sequence.group.start(sequence)
