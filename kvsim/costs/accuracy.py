"""How well a profile predicts shapes that were timed with it but lie on none of its grids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from kvsim.catalog import load_gpu
from kvsim.costs.mixtures import MoeLayer, stand_in
from kvsim.costs.operators import Place, Profile, quantile
from kvsim.costs.skew import KV_HEADS, equal, inequality, skew
from kvsim.costs.weights import Products
from kvsim.errors import ConfigError

MEDIAN_LIMIT, P95_LIMIT = 0.03, 0.10
"""Largest relative errors of all held-out shapes that a profile passes with."""
ALL = "all"
LEAST_ERROR = 0.02
"""Relative error that a time which was not measured is given at least."""
WAYS = {"prefill_attention", "moe", "moe_other"}
"""Operators that are timed by several kernels (their first axis), of which the fastest counts."""
PLAIN = "bf16"
"""The type that is not named beside an operator."""

Predict = Callable[[Place, int], float]


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
    def label(self) -> str:
        """The operator, with its type where that is not the plain one."""
        kinds = [value for value in self.place if isinstance(value, str) and value != PLAIN]
        return " ".join([self.operator, *kinds])


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
        groups.setdefault(check.label, []).append(check)
    found = [accuracy(name, group) for name, group in sorted(groups.items())]
    return [*found, accuracy(ALL, everything)]


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
    """Every held-out shape against the tables; a step levels what falls with size in them."""
    found: dict[tuple[str, Place, int], Check] = {}
    for check in predictions(profile):
        place = check.place[1:] if check.operator in WAYS else check.place
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
    for name, series in profile.held_out.items():
        predict = predictor(profile, name)
        for one in series:
            place = tuple(one["at"])
            for x, measured in zip(one["x"], one["median"], strict=True):
                yield Check(name, place, x, measured, predict(place, x))


def predictor(profile: Profile, operator: str) -> Predict:
    """What a step time takes for an operator of a place and a size, microseconds."""
    if operator in ("gemm", "gemm_model"):
        return weighted(profile)
    if operator == "decode_mixed":
        return unequal(profile)
    if operator == "moe_other":
        gpu = load_gpu(profile.gpu)
        return lambda place, n: stand_in(profile, gpu, MoeLayer(*map(int, place[2:])), n).time
    return lambda place, x: profile.table(operator).at(place, x).time


def weighted(profile: Profile) -> Predict:
    """Products, under the load that those of the grid were timed with."""
    products = {kind: Products(profile, kind) for kind in ("bf16", "fp8")}

    def predict(place: Place, m: int) -> float:
        kind, n, k = str(place[0]), *map(int, place[1:])
        return products[kind].at(n, k, m).time

    return predict


def unequal(profile: Profile) -> Predict:
    """Decodes of unequal contexts: as many equal ones, and what being unequal costs."""
    table, more = "decode_attention", skew(profile, "decode_attention")

    def predict(place: Place, context: int) -> float:
        kind, heads, cv, size = str(place[0]), *map(int, place[1:])
        even = profile.table(table).at(equal(table, kind, heads, size), context).time
        return even + more(heads, size) * inequality(size / KV_HEADS, cv / 100)

    return predict


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
