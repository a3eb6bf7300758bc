"""Reading one field of a foreign config: its type and range are checked where it is read.

Every complaint names the file and the field, shows the value seen and says what is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from kvsim.errors import ConfigError

LARGEST = 100_000_000
"""No dimension, vocabulary or head count of a real model comes near it."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one JSON object, with the file (and place in it) for messages."""

    where: str
    values: Mapping[str, Any]

    def fail(self, name: str, expected: str) -> NoReturn:
        """Raise a ConfigError about one field."""
        seen = "missing" if name not in self.values else repr(self.values[name])[:80]
        raise ConfigError(f"{self.where}: {name}: expected {expected}, found {seen}")

    def get(self, *names: str) -> Any:
        """The first of the spellings that is present and not null; None if there is none."""
        for name in names:
            value = self.values.get(name)
            if value is not None:
                return value
        return None

    def spelling(self, *names: str) -> str:
        """Which of the spellings the config uses; the first if none."""
        return next((name for name in names if self.values.get(name) is not None), names[0])

    def maybe(self, *names: str, least: int = 1, most: int = LARGEST) -> int | None:
        """A whole number in a range under one of several spellings, or None if absent."""
        name = self.spelling(*names)
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.fail(name, f"a whole number from {least} to {most}")
        return value

    def count(self, *names: str, least: int = 1, most: int = LARGEST) -> int:
        """A whole number that must be there."""
        value = self.maybe(*names, least=least, most=most)
        if value is None:
            self.fail(names[0], f"a whole number from {least} to {most}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """True or false, or the default if absent."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fail(name, "true or false")
        return value

    def ratio(self, name: str) -> float:
        """A positive finite number that must be there."""
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
            self.fail(name, "a positive number below 1e6")
        return float(value)

    def text(self, *names: str) -> str | None:
        """A string, or None if absent."""
        name = self.spelling(*names)
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            self.fail(name, "a string")
        return value

    def table(self, name: str) -> Fields:
        """A nested object."""
        value = self.values.get(name)
        if not isinstance(value, Mapping):
            self.fail(name, "an object")
        return Fields(f"{self.where}: {name}", value)

    def items(self, name: str, length: int | None = None) -> list[Any]:
        """A list, of a given length if one is given."""
        value = self.values.get(name)
        if not isinstance(value, list):
            self.fail(name, "a list")
        if length is not None and len(value) != length:
            raise ConfigError(
                f"{self.where}: {name}: expected {length} entries, one per layer, found {len(value)}"
            )
        return value

    def numbers(
        self, name: str, *, length: int | None = None, least: int = 0, most: int = LARGEST
    ) -> list[int]:
        """A list of whole numbers in a range."""
        value = self.items(name, length)
        for item in value:
            if isinstance(item, bool) or not isinstance(item, int) or not least <= item <= most:
                self.fail(name, f"a list of whole numbers from {least} to {most}")
        return value
