"""A set that forgets, so that checking a long trace for repeats takes bounded memory."""

from __future__ import annotations

from typing import Generic, TypeVar

V = TypeVar("V")


class Recent(Generic[V]):
    """Remembers what was last used: the latest ``limit`` keys for certain, twice as many at most."""

    def __init__(self, limit: int = 250_000) -> None:
        self._limit = limit
        self._new: dict[str, V] = {}
        self._old: dict[str, V] = {}

    def get(self, key: str) -> V | None:
        """The value under ``key``, which counts as used now."""
        value = self._new.get(key)
        if value is None:
            value = self._old.get(key)
            if value is not None:
                self.put(key, value)
        return value

    def put(self, key: str, value: V) -> None:
        """Remember ``value`` under ``key``."""
        if len(self._new) >= self._limit:
            self._old, self._new = self._new, {}
        self._new[key] = value
