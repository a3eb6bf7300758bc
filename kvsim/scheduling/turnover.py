"""How beams come and go: a model of what their scores would decide."""

from __future__ import annotations

from random import Random

NEVER = 1 << 62


class Turnover:
    """Which beams are dropped for a fork of another, and when.

    At each step, with probability ``rate``, one beam, drawn uniformly, is dropped and another one is
    forked in its place (a Moran process: neutral, without scores). Seeded by the request's row, so
    that neither leaps nor other requests change it.
    """

    def __init__(self, rate: float, width: int, seed: int, row: int) -> None:
        self._random = Random(f"{seed}:{row}")
        self._rate = rate
        self._width = width
        self.due = 2
        """Generated tokens of each beam at which the next one is dropped."""
        self._wait()

    def _wait(self) -> None:
        """Draw the steps until the next drop."""
        if not self._rate:
            self.due = NEVER
        while 0 < self._rate < 1 and self._random.random() >= self._rate:
            self.due += 1

    def draw(self) -> tuple[int, int]:
        """Index of the beam that is dropped and of the one that is forked; then the next wait."""
        dropped, forked = self._random.sample(range(self._width), 2)
        self.due += 1
        self._wait()
        return dropped, forked
