"""How well a profile predicts shapes that were timed in the same run but lie on no grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.costs.operators import Check, Profile, quantile
from kvsim.errors import ConfigError

MEDIAN_LIMIT, P95_LIMIT = 0.03, 0.10
"""Largest relative errors of all held-out shapes that a profile passes with."""
ALL = "all"


class Accuracy(NamedTuple):
    """Relative errors over the held-out shapes of an operator."""

    operator: str
    shapes: int
    median: float
    p95: float
    bias: float
    """Mean signed error: above 0 the profile is too slow."""
    worst: Check

    @property
    def passes(self) -> bool:
        """Whether the errors are within the limits."""
        return self.median <= MEDIAN_LIMIT and self.p95 <= P95_LIMIT


def accuracies(profile: Profile) -> list[Accuracy]:
    """The accuracy of every operator that has held-out shapes, and last that of all together."""
    if not profile.checks:
        raise ConfigError(f"{profile.source}: no shape was held out to check it by")
    groups: dict[str, list[Check]] = {}
    for check in profile.checks:
        groups.setdefault(check.operator, []).append(check)
    found = [accuracy(name, checks) for name, checks in groups.items()]
    return [*found, accuracy(ALL, profile.checks)]


def accuracy(name: str, checks: Sequence[Check]) -> Accuracy:
    """The errors of some held-out shapes."""
    errors = [abs(check.error) for check in checks]
    return Accuracy(
        name,
        len(checks),
        quantile(errors, 0.5),
        quantile(errors, 0.95),
        sum(check.error for check in checks) / len(checks),
        max(checks, key=lambda check: abs(check.error)),
    )
