"""The one that has produced least goes: least of its answer is interrupted."""

from __future__ import annotations

from kvsim.protocols import Standing


class FewestGenerated:
    """The fewest output tokens first, of equals the longest input, as SGLang retracts.

    Source: SGLang 0.5.23 ``managers/schedule_batch.py`` (``retract_decode``).
    """

    def rank(self, standing: Standing) -> int:
        """By output tokens, fewest first; then by prompt, longest first."""
        return -(standing.generated << 40) + standing.sequence.request.prompt_tokens
