"""The one that holds most goes: the fewest victims for the room that is needed."""

from __future__ import annotations

from kvsim.protocols import Standing


class Largest:
    """The sequence with the most tokens in memory."""

    def rank(self, standing: Standing) -> int:
        """By tokens whose KV exists."""
        return standing.tokens
