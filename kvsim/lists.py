"""Lists by commas, as flags take them: read in one place, so that all refuse the same mistakes."""

from __future__ import annotations

from kvsim.errors import ConfigError, shown


def listed(flag: str, text: str) -> list[str]:
    """The names of a list, each once, in their order.

    ConfigError for a list without names, and for one with an empty place, as in ``1,,2``.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        seen = "has an empty place" if any(parts) else "names nothing"
        raise ConfigError(f"{flag} {shown(text)} {seen}; accepted: names with a comma between two")
    return list(dict.fromkeys(parts))
