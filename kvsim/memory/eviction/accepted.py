"""What the options of eviction policies may be."""

from __future__ import annotations

import math

from kvsim.errors import ConfigError


def between(least: float, most: float, /, **options: float) -> None:
    """ConfigError for an option that is not from ``least`` to ``most``, or not finite."""
    for name, value in options.items():
        if not (least <= value <= most and math.isfinite(value)):
            accepted = f"{least:g} to {most:g}" if math.isfinite(most) else f"{least:g} or more"
            raise ConfigError(f"eviction.{name} is {value}; accepted: {accepted}")


def positive(**options: float) -> None:
    """ConfigError for an option that is not above zero, or not finite."""
    for name, value in options.items():
        if not (value > 0 and math.isfinite(value)):
            raise ConfigError(f"eviction.{name} is {value}; accepted: a number above 0")
