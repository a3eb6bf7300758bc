"""What the dashboard says, in every language: :file:`strings.toml` is the one catalogue."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

LANGUAGES = {"en": "English", "zh": "中文"}
CATALOGUE = Path(__file__).with_name("strings.toml")


@cache
def catalogue() -> dict[str, dict[str, str]]:
    """Texts by key, then by language."""
    return tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))


class Words:
    """Says things in one language: ``say("run.slowest", count=20)``."""

    def __init__(self, language: str) -> None:
        self.language = language

    def __call__(self, key: str, **values: object) -> str:
        """The text of a key with its values filled in."""
        text = catalogue()[key][self.language]
        return text.format(**values) if values else text
