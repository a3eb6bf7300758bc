"""Auto: swap or recompute, whichever takes less time."""

from __future__ import annotations

from kvsim.core import Sequence
from kvsim.scheduling.preemption.swap import Swap


class Auto(Swap):
    """Swaps a request if copying it out and back takes less time than one prefill of its tokens.

    The comparison knows neither what else shares an iteration with the prefill nor what a prefix
    cache will still hold.
    """

    def keep(self, sequence: Sequence, tokens: int) -> int:
        """The time of copying out, if that and the way back are the cheaper choice."""
        moves, copies = self._moves, self._copies
        if tokens and moves.out(tokens, copies) + moves.back(tokens, copies) >= moves.compute(
            tokens
        ):
            return 0
        return super().keep(sequence, tokens)
