"""A link to the host for tests: affine times, a space counted in slots."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """``out`` and ``back`` cost ``per_token`` a token, ``compute`` its square times ``per_pair``."""

    per_token: int = 1000
    per_pair: int = 100

    def slots(self, gib: float) -> int:
        return int(gib)

    def out(self, tokens: int, copies: str) -> int:
        return self.per_token * tokens + 5

    def back(self, tokens: int, copies: str) -> int:
        return self.per_token * tokens + 5

    def compute(self, tokens: int) -> int:
        return self.per_pair * tokens * tokens
