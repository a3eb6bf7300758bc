"""How much a contiguous allocator reserves: the three Orca baselines of the PagedAttention paper.

They are baselines that *know the true length of the answer* (``pow2`` and ``oracle`` to reserve,
all of them to tell what is reserved from what is wasted), which no engine does. This is the only
module of ``kvsim.memory`` that may read it.

Source: Kwon et al., SOSP 2023 (arXiv:2309.06180), section 6.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kvsim.core import Sequence


class ReservationRule(Protocol):
    """Decides what is set aside for a sequence when it is admitted."""

    def slots(self, sequence: Sequence) -> int:
        """Slots to reserve."""
        ...

    def final(self, sequence: Sequence) -> int:
        """Slots that the sequence will have used when it ends."""
        ...


def true_length(sequence: Sequence) -> int:
    """Tokens of prompt and answer: what a sequence comes to in the end."""
    return sequence.request.prompt_tokens + sequence.request.output_tokens


class ReserveMax:
    """Orca (Max): every sequence gets ``max_tokens``, the longest that the model may serve.

    A sequence that is longer all the same gets what it needs, so that no range is ever outgrown.
    """

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens

    def slots(self, sequence: Sequence) -> int:
        """The maximum length, whatever the sequence."""
        return max(self.max_tokens, true_length(sequence))

    def final(self, sequence: Sequence) -> int:
        """Its true length."""
        return true_length(sequence)


class ReservePow2(ReserveMax):
    """Orca (Pow2): the prompt, and the true answer rounded up to a power of two (25 to 32)."""

    def slots(self, sequence: Sequence) -> int:
        """Prompt and rounded answer, at most the maximum length."""
        answer = sequence.request.output_tokens
        rounded = 1 << (answer - 1).bit_length() if answer else 0
        return min(sequence.request.prompt_tokens + rounded, super().slots(sequence))


class ReserveOracle(ReserveMax):
    """Orca (Oracle): exactly the prompt and the true answer."""

    def slots(self, sequence: Sequence) -> int:
        """Its true length."""
        return true_length(sequence)


RESERVATIONS: dict[str, Callable[[int], ReservationRule]] = {
    "max": ReserveMax,
    "pow2": ReservePow2,
    "oracle": ReserveOracle,
}
"""Rules by name; each takes the longest sequence that may be served, in tokens."""
