"""A technique put to the test: the same requests without it and with it, and what changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from kvsim.advice.facts import Facts
from kvsim.scenario import Scenario

MEAN_MATTERS = 0.02
TAIL_MATTERS = 0.10
"""Changes below these shares are none: a tail rests on few requests."""

Verdict = Literal["helps", "hurts", "trade-off", "inert", "makes it fit", "not enough evidence"]


class Measure(NamedTuple):
    """A number that a situation is judged by."""

    key: str
    label: str
    unit: str
    better: Literal["lower", "higher"]
    matters: float
    """Share by which it must change to count."""


ANSWER = Measure("mean_e2el_ms", "answer complete, mean", "ms", "lower", MEAN_MATTERS)
FIRST = Measure("mean_ttft_ms", "first token, mean", "ms", "lower", MEAN_MATTERS)
TOKEN = Measure("mean_tpot_ms", "per token, mean", "ms", "lower", MEAN_MATTERS)
FIRST_TAIL = Measure("p99_ttft_ms", "first token, p99", "ms", "lower", TAIL_MATTERS)
FIRST_MEDIAN = Measure("median_ttft_ms", "first token, median", "ms", "lower", TAIL_MATTERS)
"""Of clients who all begin at once: the tail is their first requests."""
GAP_TAIL = Measure("p99_itl_ms", "gap between tokens, p99", "ms", "lower", TAIL_MATTERS)
OUTPUT = Measure("output_throughput_per_gpu", "answers, per GPU", "tok/s", "higher", MEAN_MATTERS)
GOOD = Measure("request_goodput", "requests within the limits", "/s", "higher", MEAN_MATTERS)


def measures(clients: int | None, *, limited: bool) -> tuple[Measure, ...]:
    """What a situation is judged by, the one that decides first."""
    if clients == 1:
        return (ANSWER, FIRST, TOKEN)
    if clients is not None:
        return (OUTPUT, FIRST_MEDIAN, GAP_TAIL)
    return (GOOD, FIRST_TAIL, GAP_TAIL) if limited else (ANSWER, FIRST_TAIL, GAP_TAIL)


class Run(NamedTuple):
    """What one replay has shown: its summary, or why there is none."""

    scenario: Scenario
    """With what was left open filled in, where it could be."""
    summary: Mapping[str, object] | None
    failure: str | None

    def number(self, key: str) -> float | None:
        """A number of the summary."""
        value = None if self.summary is None else self.summary.get(key)
        return float(value) if isinstance(value, int | float) else None


class Change(NamedTuple):
    """One measure without and with a technique."""

    measure: Measure
    before: float
    after: float

    @property
    def share(self) -> float:
        """How much it changed, as a share of what it was."""
        return self.after / self.before - 1 if self.before else 0.0

    @property
    def gain(self) -> Literal[-1, 0, 1]:
        """1: better, -1: worse, 0: by too little to matter."""
        if abs(self.share) < self.measure.matters:
            return 0
        return 1 if (self.share < 0) == (self.measure.better == "lower") else -1

    def __str__(self) -> str:
        name, unit = self.measure.label, self.measure.unit
        share = f"{self.share:+z.1%}" if self.share < -0.99 else f"{self.share:+z.0%}"
        return f"{name} {amount(self.before)} -> {amount(self.after)} {unit} ({share})"


def amount(value: float) -> str:
    """A number as precise as a reader cares for."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


class Comparison(NamedTuple):
    """The same requests without and with a technique."""

    without: Run
    with_it: Run
    facts: Facts
    changes: tuple[Change, ...]
    """Of every measure that both runs have, the one that decides first."""

    @property
    def verdict(self) -> Verdict:
        """What the technique does."""
        if self.with_it.summary is None:
            return "not enough evidence"
        if self.without.summary is None:
            return "makes it fit"
        gains = {change.gain for change in self.changes}
        if not gains & {1, -1}:
            return "inert"
        if -1 in gains:
            return "trade-off" if 1 in gains else "hurts"
        return "helps"

    def before(self, key: str) -> float:
        """A number of the run without the technique; 0 where there is none."""
        return self.without.number(key) or 0.0

    def after(self, key: str) -> float:
        """A number of the run with it; 0 where there is none."""
        return self.with_it.number(key) or 0.0


def compared(
    without: Run, with_it: Run, facts: Facts, judged_by: tuple[Measure, ...]
) -> Comparison:
    """Put two runs side by side."""
    pairs = [(m, without.number(m.key), with_it.number(m.key)) for m in judged_by]
    changes = tuple(Change(m, a, b) for m, a, b in pairs if a is not None and b is not None)
    return Comparison(without, with_it, facts, changes)
