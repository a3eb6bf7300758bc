"""How well a profile predicts shapes that were timed in the same run but lie on no grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from kvsim.costs.operators import Place, Profile, quantile
from kvsim.costs.weights import Products
from kvsim.errors import ConfigError

MEDIAN_LIMIT, P95_LIMIT = 0.03, 0.10
"""Largest relative errors of all held-out shapes that a profile passes with."""
ALL = "all"
LEAST_ERROR = 0.02
"""Relative error that a time which was not measured is given at least."""
PADDED, PAD = 512, 8
"""Engines pad batches of fewer rows than the first to a multiple of the second (CUDA graphs are
captured for those), so no other shape below it is counted."""


class Check(NamedTuple):
    """A timed shape that is on no grid, with what the tables say about it."""

    operator: str
    place: Place
    x: int
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.measured - 1

    @property
    def is_padded(self) -> bool:
        """Whether engines would run a larger shape in its place."""
        is_product = self.operator in ("gemm", "gemm_model")
        return is_product and self.x < PADDED and self.x % PAD != 0


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
    everything = checks(profile)
    if not everything:
        raise ConfigError(f"{profile.source}: no shape was held out to check it by")
    groups: dict[str, list[Check]] = {}
    for check in everything:
        groups.setdefault(check.operator, []).append(check)
    found = [accuracy(name, group) for name, group in groups.items()]
    return [*found, accuracy(ALL, everything)]


def with_padded(profile: Profile) -> Accuracy:
    """The accuracy of all held-out shapes, also of those that engines pad and that do not count."""
    return accuracy(
        "all, also padded",
        [*checks(profile), *(one for one in predictions(profile) if one.is_padded)],
    )


def accuracy(name: str, checked: Sequence[Check]) -> Accuracy:
    """The errors of some held-out shapes."""
    errors = [abs(check.error) for check in checked]
    return Accuracy(
        name,
        len(checked),
        quantile(errors, 0.5),
        quantile(errors, 0.95),
        sum(check.error for check in checked) / len(checked),
        max(checked, key=lambda check: abs(check.error)),
    )


@cache
def checks(profile: Profile) -> list[Check]:
    """Every held-out shape that engines run, against what a step time would use for it.

    Attention of a prompt is timed by several kernels, of which the fastest counts.
    """
    found: dict[tuple[str, Place, int], Check] = {}
    for check in predictions(profile):
        if check.is_padded:
            continue
        ways = check.operator == "prefill_attention"
        place = check.place[1:] if ways else check.place
        key = (check.operator, place, check.x)
        known = found.get(key)
        if known is not None:
            check = check._replace(
                measured=min(check.measured, known.measured),
                predicted=min(check.predicted, known.predicted),
            )
        found[key] = check._replace(place=place)
    return list(found.values())


def predictions(profile: Profile) -> Iterator[Check]:
    """All held-out shapes one by one."""
    products = {"bf16": Products(profile, "bf16"), "fp8": Products(profile, "fp8")}
    for name, series in profile.held_out.items():
        for one in series:
            place = tuple(one["at"])
            for x, measured in zip(one["x"], one["median"], strict=True):
                if name in ("gemm", "gemm_model"):
                    dtype, n, k = one["at"]
                    time = products[dtype].at(n, k, x).time
                else:
                    time = profile.table(name).at(place, x).time
                yield Check(name, place, x, measured, time)


@cache
def errors(profile: Profile) -> dict[str, float]:
    """Relative error of nine in ten held-out shapes, by operator."""
    groups: dict[str, list[float]] = {}
    for check in checks(profile):
        groups.setdefault(check.operator, []).append(abs(check.error))
    return {name: max(quantile(group, 0.9), LEAST_ERROR) for name, group in groups.items()}


def error(profile: Profile, operator: str) -> float:
    """The error to expect of an operator; where none of its shapes was held out, the largest of all."""
    known = errors(profile) or {operator: LEAST_ERROR}
    return known.get(operator, max(known.values()))
