"""Contexts of unequal length."""

from __future__ import annotations

import numpy as np

SPREADS = (25, 50, 100, 200)
"""Coefficients of variation of contexts that are timed, percent."""


def uneven(count: int, variation: float) -> list[float]:
    """Lognormal numbers of mean 1, as wide that these few vary as much as is asked for.

    ``count`` numbers can vary by less than the root of ``count - 1``.
    """
    normal = np.random.default_rng(4).standard_normal(count)
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        found = np.exp(middle * (normal - normal.max()))
        low, high = (low, middle) if found.std() > variation * found.mean() else (middle, high)
    return [float(share) for share in found / found.mean()]
