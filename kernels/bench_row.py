"""One shape of one kernel: what it moves and computes, how to launch it, and what it took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from .timing import Spread, time_chain, time_launches

Launch = Callable[[], object]
TOLERANCE = 1e-2
"""Relative error of a result in bfloat16."""


@dataclass
class Row:
    """One shape. Times are microseconds; ``chained`` is the time among many launches in one graph."""

    kind: str
    shape: dict[str, int | str]
    bytes: float
    """Device (or host link) bytes that must move: each input read once, each output written once."""
    flops: float
    median: float = 0.0
    p10: float = 0.0
    p90: float = 0.0
    repeats: int = 0
    chained: float | None = None
    reference: float | None = None
    error: float | None = None
    """Relative to float64, of one sequence; a wrong kernel's speed means nothing."""
    launches: list[Launch] = field(default_factory=list)

    def time(self) -> Row:
        """Run it, and forget how."""
        assert self.error is None or self.error < TOLERANCE, f"{self.kind} {self.shape} is wrong"
        self.median, self.p10, self.p90, self.repeats = _microseconds(time_launches(self.launches))
        if len(self.launches) > 1:
            self.chained = _microseconds(time_chain(self.launches)).median
        self.launches = []
        return self

    def figures(self) -> dict[str, object]:
        """All of it but the launches."""
        return {name: value for name, value in asdict(self).items() if name != "launches"}


def _microseconds(seconds: Spread) -> Spread:
    median, p10, p90, repeats = seconds
    return Spread(1e6 * median, 1e6 * p10, 1e6 * p90, repeats)
