"""The arguments that a recorded engine was started with, read with care."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any

from kvsim.errors import TraceError, shown
from kvsim.validation.reference import MOST


class Arguments:
    """Values of an object in a recording, by name; one that is null counts as absent.

    ``where`` names the object in the TraceError about a value that is not accepted.
    """

    def __init__(self, where: str, given: object) -> None:
        if not isinstance(given, Mapping):
            raise TraceError(f"{where} is {shown(given)}; accepted: an object")
        self.where = where
        self._given = {name: value for name, value in given.items() if value is not None}
        self._read: set[str] = set()

    def text(self, name: str, default: str = "") -> str:
        """A name."""
        found: str = self._one(name, default, lambda value: type(value) is str, "a text")
        return found

    def flag(self, name: str, default: bool) -> bool:
        """A choice."""
        found: bool = self._one(name, default, lambda value: type(value) is bool, "true, false")
        return found

    def whole(self, name: str, default: int, *, least: int = 1, most: int = MOST) -> int:
        """A number of things."""
        accepted = f"a whole number from {least}" + (f" to {most:,}" if most < MOST else "")
        found: int = self._one(
            name, default, lambda value: type(value) is int and least <= value <= most, accepted
        )
        return found

    def amount(self, name: str, default: float) -> float:
        """A quantity from 0."""
        found: float = self._one(
            name,
            default,
            lambda value: type(value) in (int, float) and 0 <= value < inf,
            "a number from 0",
        )
        return found

    def sizes(self, name: str) -> tuple[int, ...] | None:
        """A list of numbers from 1 in order; None if it is absent."""
        found = self._one(name, None, are_sizes, "a list of whole numbers from 1")
        return None if found is None else tuple(sorted(found))

    def only(self, name: str, *accepted: object) -> None:
        """Refuse any other value than these."""
        named = ", ".join(map(str, accepted)) or "none"
        self._one(name, None, lambda value: value in accepted, named)

    def inner(self, name: str) -> Arguments:
        """The values of an object within this one; of anything else, which stays unread, none."""
        value = self._given.get(name)
        if isinstance(value, Mapping):
            self._read.add(name)
        return Arguments(f"{self.where}.{name}", value if isinstance(value, Mapping) else {})

    def unread(self) -> Iterator[tuple[str, str, object]]:
        """What nobody has asked for: its name with its place, its name, and its value."""
        for name, value in self._given.items():
            if name not in self._read:
                yield f"{self.where}.{name}", name, value

    def _one(self, name: str, default: Any, right: Callable[[Any], bool], accepted: str) -> Any:
        self._read.add(name)
        value = self._given.get(name)
        if value is None:
            return default
        if not right(value):
            raise TraceError(f"{self.where}.{name} is {shown(value)}; accepted: {accepted}")
        return value


def are_sizes(value: object) -> bool:
    """Whether a value is a list of whole numbers from 1."""
    return isinstance(value, list) and all(type(size) is int and size > 0 for size in value)
