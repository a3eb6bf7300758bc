"""What the dashboard says, in every language.

:file:`strings.toml` is the catalogue of its own texts. The library speaks English, in runs and plans that
were written long ago too: :file:`sentences.toml` has its sentences as templates, and what stands in
their braces is carried over into the reader's language.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

LANGUAGES = {"en": "English", "zh": "中文"}
CATALOGUE = Path(__file__).with_name("strings.toml")
SENTENCES = Path(__file__).with_name("sentences.toml")
JOINTS = {"zh": {"; ": "；", ", ": "，", " and ": " 与 "}}
"""What holds parts of a sentence together, the loosest first."""


@cache
def catalogue() -> dict[str, dict[str, str]]:
    """Texts by key, then by language."""
    return tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))


@cache
def sentences(language: str) -> list[tuple[re.Pattern[str], str]]:
    """The library's sentences, and what they are in a language."""
    found = tomllib.loads(SENTENCES.read_text(encoding="utf-8"))
    return [(pattern(english), said[language]) for english, said in found.items()]


def pattern(template: str) -> re.Pattern[str]:
    """Matches a template with anything but the end of a clause in its braces."""
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^;]+?)", re.escape(template)))


def plain(text: str) -> str:
    """A text from outside as Markdown that shows it as it is."""
    return re.sub(r"[\\`*$\[\]<>~]|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)


class Words:
    """Says things in one language: ``say("run.slowest", count=20)``."""

    def __init__(self, language: str) -> None:
        self.language = language

    def __call__(self, key: str, **values: object) -> str:
        """The text of a key with its values filled in."""
        text = catalogue()[key][self.language]
        return text.format(**values) if values else text

    def translated(self, english: str) -> str:
        """A sentence of the library; parts that are in no template stay as they are."""
        if self.language not in JOINTS:
            return english
        for found, said in sentences(self.language):
            if match := found.fullmatch(english):
                parts = {name: self.translated(part) for name, part in match.groupdict().items()}
                return said.format(**parts)
        for joint, ours in JOINTS[self.language].items():
            if joint in english:
                return ours.join(map(self.translated, english.split(joint)))
        return english
