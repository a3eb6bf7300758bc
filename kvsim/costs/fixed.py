"""Every iteration takes the same time, whatever is in it."""

from __future__ import annotations

from math import isfinite

from kvsim.core import BatchShape, picoseconds
from kvsim.errors import ConfigError


class Fixed:
    """A constant step time: for comparing decisions, and for queues with known formulas."""

    label = "fixed"

    def __init__(self, *, step_time: float = 0.01) -> None:
        """``step_time`` in seconds."""
        if not isfinite(step_time) or not 0 < step_time <= 1e6:
            raise ConfigError(f"fixed step time {step_time}: expected seconds above 0, up to 1e6")
        self._step = picoseconds(step_time)

    def time(self, shape: BatchShape, steps: int = 1) -> int:
        """``steps`` times the step time, in picoseconds."""
        return steps * self._step
