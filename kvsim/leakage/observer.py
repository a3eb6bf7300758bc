"""What times to first token tell: pure functions of two samples, those of repeats and of controls."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from kvsim.tables import Floats

ERROR = 0.05
"""Chance of each mistake (a hit taken for a miss, a miss for a hit) that is accepted."""
SURE = 1.96
"""Standard errors that a difference must exceed to count."""


class Advantage(NamedTuple):
    """How much better than a coin an observer is that guesses "sent before" below a threshold."""

    threshold: float
    """Seconds; chosen by every other observation of each kind, and judged by the others."""
    true_positives: float
    """Share of repeats below it."""
    false_positives: float
    """Share of controls below it."""
    error: float
    """Standard error of the difference of these two."""

    @property
    def value(self) -> float:
        """TPR - FPR: 1 for certainty, 0 for guessing."""
        return self.true_positives - self.false_positives

    @property
    def found(self) -> bool:
        """Whether it cannot well be chance."""
        return self.value > SURE * self.error


def auc(repeats: Floats, controls: Floats) -> float:
    """Chance that a random repeat is faster than a random control; equal ones count half."""
    ordered = np.sort(controls)
    slower = len(ordered) - np.searchsorted(ordered, repeats, side="right")
    equal = np.searchsorted(ordered, repeats, side="right") - np.searchsorted(ordered, repeats)
    return float((slower + equal / 2).sum() / (len(repeats) * len(controls)))


def advantage(repeats: Floats, controls: Floats) -> Advantage:
    """The threshold that half of the observations favour, judged by the other half."""
    threshold = _best_threshold(repeats[::2], controls[::2])
    hit, miss = repeats[1::2] <= threshold, controls[1::2] <= threshold
    rates = [_share(hit), _share(miss)]
    variances = [p * (1 - p) / len(flags) for p, flags in zip(rates, (hit, miss), strict=True)]
    return Advantage(threshold, float(hit.mean()), float(miss.mean()), math.sqrt(sum(variances)))


def _share(flags: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> float:
    """Their share, drawn a little to one half, so that a sample never proves certainty."""
    return (float(flags.sum()) + 0.5) / (len(flags) + 1)


def _best_threshold(repeats: Floats, controls: Floats) -> float:
    """Halfway from the observed time with the largest TPR - FPR to the next one."""
    times = np.unique(np.concatenate([repeats, controls]))
    below = np.searchsorted(np.sort(repeats), times, side="right") / len(repeats)
    wrong = np.searchsorted(np.sort(controls), times, side="right") / len(controls)
    best = int(np.argmax(below - wrong))
    return float(times[best : best + 2].mean())


def observations_needed(found: Advantage, held_out: int) -> int | None:
    """Independent observations of one secret after which both mistakes are at most 5 % likely.

    Each is judged by the threshold, and so many of them must be below it. ``held_out`` observations
    of each kind have given the rates. None if the observer cannot tell at all.
    """
    if not found.found:
        return None
    high = (found.true_positives * held_out + 0.5) / (held_out + 1)
    low = (found.false_positives * held_out + 0.5) / (held_out + 1)
    enough = 1
    while not _decides(enough, high, low):
        enough = 2 * enough + 1
    # Odd numbers only: of an even number the last one hardly helps.
    odd = range(1, enough + 2, 2)
    return odd[bisect_left(odd, True, key=lambda count: _decides(count, high, low))]


def _decides(count: int, high: float, low: float) -> bool:
    """Whether some number of ``count`` observations below the threshold separates the two rates."""
    missed = np.concatenate([[0.0], np.cumsum(_binomial(count, high))])
    wrong = 1 - np.concatenate([[0.0], np.cumsum(_binomial(count, low))])
    # Whoever decides for "sent before" at k or more is wrong with P(X < k) and P(Y >= k).
    return bool(np.any((missed <= ERROR) & (wrong <= ERROR)))


def _binomial(count: int, rate: float) -> Floats:
    """Chances of 0 to ``count`` successes; the rate is neither 0 nor 1."""
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
    choose = factorials[-1] - factorials - factorials[::-1]
    successes = np.arange(count + 1)
    logs = choose + successes * math.log(rate) + successes[::-1] * math.log1p(-rate)
    chances: Floats = np.exp(logs)
    return chances
