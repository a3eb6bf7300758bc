"""Recompute: what was computed is lost, and computed again in one go."""

from __future__ import annotations

from kvsim.core import Sequence


class Recompute:
    """Nothing is kept; what a prefix cache still holds is hit when the sequence comes back.

    Source: Kwon et al., SOSP 2023 (arXiv:2309.06180), section 4.5; all that vLLM's V1 engine does.
    """

    overtaking = False
    moved = 0

    def keep(self, sequence: Sequence, tokens: int) -> int:
        """Nothing is copied."""
        return 0

    def kept(self, sequence: Sequence) -> int:
        """None."""
        return 0

    def restore(self, sequence: Sequence, tokens: int) -> int:
        """Nothing comes back."""
        raise AssertionError("nothing was kept")

    def drop(self, sequence: Sequence) -> None:
        """Nothing was kept."""
