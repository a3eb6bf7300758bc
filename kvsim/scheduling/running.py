"""The decode clock: every decoding sequence gains one token a step, so nobody is touched in between.

A sequence's length is its length when it began to decode plus the steps since. This module is on the
execution side of the oracle boundary: it alone knows when a sequence will end.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from kvsim.core import BatchShape, Sequence


class Running:
    """The decoding sequences of one replica, and the steps at which they end."""

    def __init__(self) -> None:
        self.step = 0
        self.decodes = 0
        """Sequences that decode."""
        self.context_tokens = 0
        """Their computed tokens, summed."""
        self.context_squares = 0
        """The squares of their computed tokens, summed."""
        self.unseen = 0
        """Steps among those counted that are in flight."""
        self._ends: list[tuple[int, int, Sequence]] = []  # (step, order, sequence), some stale

    def join(self, sequence: Sequence) -> bool:
        """Let a sequence decode from the next step on; False if its answer is complete already."""
        left = sequence.request.output_tokens - sequence.generated
        if left <= 0:
            return False
        sequence.start_step = self.step
        self.decodes += 1
        self.context_tokens += sequence.num_computed
        self.context_squares += sequence.num_computed**2
        heappush(self._ends, (self.step + left, sequence.order, sequence))
        return True

    def shape(self, prompts: Iterable[tuple[Sequence, int]] = ()) -> BatchShape:
        """An iteration in which all decode, beside so many new tokens of each prompt."""
        decodes = sampled = self.decodes
        count = tokens = context = pairs = 0
        each: list[tuple[int, int]] = []
        for sequence, new in prompts:
            cached = sequence.num_computed
            count += 1
            tokens += new
            context += cached
            pairs += new * cached + new * (new + 1) // 2
            sampled += cached + new == sequence.num_tokens
            each.append((new, cached))
        reads, squares = self.context_tokens, self.context_squares
        several = tuple(each) if count > 1 else ()
        return BatchShape(decodes, reads, count, tokens, context, pairs, sampled, squares, several)

    def computed(self, sequence: Sequence) -> int:
        """Tokens of a decoding sequence whose KV exists."""
        return sequence.num_computed + self.step - sequence.start_step

    def leave(self, sequence: Sequence) -> None:
        """Take a decoding sequence out and bring its counts up to date."""
        steps = self.step - sequence.start_step
        sequence.num_computed += steps
        sequence.num_tokens += steps
        sequence.generated += steps
        sequence.unhashed = min(steps, self.unseen)
        self.decodes -= 1
        self.context_tokens -= sequence.num_computed
        self.context_squares -= sequence.num_computed**2

    def steps_to_finish(self) -> int:
        """Steps until the next sequence ends; at least one sequence decodes."""
        ends = self._ends
        while ends[0][1] != ends[0][2].order:  # preempted since, and perhaps admitted again
            heappop(ends)
        return ends[0][0] - self.step

    def advance(self, steps: int) -> list[Sequence]:
        """Every decoder gains ``steps`` tokens; returns those that end with it, in running order."""
        self.step += steps
        self.context_squares += steps * (2 * self.context_tokens + steps * self.decodes)
        self.context_tokens += steps * self.decodes
        ends, finished = self._ends, []
        while ends and ends[0][0] <= self.step:
            _, order, sequence = heappop(ends)
            if order == sequence.order:
                self.leave(sequence)
                finished.append(sequence)
        return finished
