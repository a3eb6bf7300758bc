"""A prefix cache alone, without time: hits by capacity and policy, and the bounds on them."""

from __future__ import annotations

from kvsim.caching.accesses import accesses_of
from kvsim.caching.curve import Curve, lru_curve

__all__ = ["Curve", "accesses_of", "lru_curve"]
