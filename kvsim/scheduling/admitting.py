"""Who of those that wait is let in, and with how many of its tokens."""

from __future__ import annotations

from typing import NamedTuple

from kvsim.core import Sequence
from kvsim.protocols import Allocator, Preemption, VictimRule
from kvsim.scheduling.preempting import Preempting


class Limits(NamedTuple):
    """What an iteration may hold, and what admissions leave alone."""

    sequences: int
    tokens: int
    longest_chunk: int
    """Tokens of one prompt in one iteration."""
    spare: int
    """Slots that an admission leaves free while anything runs (a watermark)."""


class Admitting(Preempting):
    """The queue: first come, first served, unless those in front wait for copies from the host."""

    def __init__(
        self,
        allocator: Allocator,
        limits: Limits,
        *,
        victim: VictimRule | None,
        preemption: Preemption | None,
        beam_turnover: float,
        seed: int,
    ) -> None:
        super().__init__(
            allocator,
            victim=victim,
            preemption=preemption,
            beam_turnover=beam_turnover,
            seed=seed,
        )
        self.widest = limits.sequences
        self._max_seqs, self._budget, self._longest_chunk, self._spare = limits

    def _admit(self, prompts: list[tuple[Sequence, int]], budget: int, now: int) -> None:
        waiting, running = self._waiting, self._running
        while waiting and budget > 0 and len(running) < self._max_seqs:
            tokens = self._try(0, prompts, budget, now) or self._overtake(prompts, budget, now)
            if not tokens:
                self._blocked = True
                return
            budget -= tokens

    def _overtake(self, prompts: list[tuple[Sequence, int]], budget: int, now: int) -> int:
        """Admit the first new request, if those before it wait for what the host has of them."""
        if not self._preemption.overtaking or not self._on_host(self._waiting[0]):
            return 0
        fresh = (place for place, one in enumerate(self._waiting) if one.scheduled is None)
        place = next(fresh, None)
        return 0 if place is None else self._try(place, prompts, budget, now)

    def _try(self, place: int, prompts: list[tuple[Sequence, int]], budget: int, now: int) -> int:
        """Admit who waits at a place of the queue; returns the tokens it computes, 0 if refused."""
        allocator, sequence = self._allocator, self._waiting[place]
        match = allocator.match(sequence)
        start = match.tokens
        if self._swaps:
            start = max(start, self._on_host(sequence))
        tokens = self._chunk_from(start, sequence, budget)
        spare = self._spare if self._running else 0
        if self._groups.met:
            if not self._seats_for(sequence):
                return 0
            if sequence.group is not None and self._running:
                spare += sequence.group.regrowth
        if not allocator.admit(sequence, match, start + tokens, spare=spare):
            return 0
        del self._waiting[place]
        self._start(sequence, start, now)
        if self._swaps:
            self._return(sequence, start, match)
        if start + tokens < sequence.num_tokens:
            self._prefilling.append(sequence)
        prompts.append((sequence, tokens))
        return tokens

    def _seats_for(self, sequence: Sequence) -> bool:
        """Whether a waiting sequence, and those that will be forked from it, find seats."""
        seats = self._max_seqs - len(self._running) - self._groups.promised()
        return seats > (sequence.group.absent if sequence.group is not None else 0)

    def _chunk_from(self, start: int, sequence: Sequence, budget: int) -> int:
        """Tokens of a prompt that the next iteration may compute from ``start`` on."""
        return min(sequence.num_tokens - start, budget, self._longest_chunk)
