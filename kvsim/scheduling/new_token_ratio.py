"""How much of the answers that are still allowed an engine expects to see generated."""

from __future__ import annotations

from kvsim.errors import ConfigError

START = 0.7
"""Before anything has been decoded."""
FLOOR = 0.14
"""What is left in the end, as a share of the start."""
DECAY_STEPS = 600
"""Decode iterations from the start to the floor."""
RETRACT_STEPS = 20
"""Decode iterations that a retraction makes room for, of each answer that goes on."""


class NewTokenRatio:
    """Admissions set this share of each running answer's remaining allowance aside.

    It falls with every decode iteration that finds room, in equal parts, from ``START`` to ``FLOOR``
    of that, and rises when a retraction has shown that it was too low. ``conservativeness`` scales
    the start, up to 1. Source: SGLang 0.5.23 ``scheduler_components/new_token_ratio_tracker.py`` and
    the defaults of its environment variables ``SGLANG_*_NEW_TOKEN_RATIO*``.
    """

    def __init__(self, conservativeness: float = 1.0) -> None:
        if not 0 <= conservativeness <= 100:
            raise ConfigError(
                f"scheduler.schedule_conservativeness is {conservativeness}; accepted: 0 to 100"
            )
        self._start = min(START * conservativeness, 1.0)
        self._floor = self._start * FLOOR
        self._decay = (self._start - self._floor) / DECAY_STEPS
        self.reset()

    @property
    def value(self) -> float:
        """The share; a product of the iterations so far, so that a leap ends where its steps do."""
        if not self._steps:
            return self._from
        return max(self._from - self._steps * self._decay, self._floor)

    def reset(self) -> None:
        """The engine is idle: begin anew."""
        self._from, self._steps = self._start, 0

    def fall(self, steps: int) -> None:
        """``steps`` decode iterations have found room."""
        self._steps += steps

    def estimate(self, generated: int, answers: int, allowed: int) -> None:
        """Answers were retracted: the rest has ``generated`` of the ``allowed`` tokens, summed."""
        self._from = min(1.0, (generated + RETRACT_STEPS * answers) / (allowed + 1))
        self._steps = 0
