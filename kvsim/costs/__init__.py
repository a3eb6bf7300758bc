"""How long an iteration takes. A cost model is a class; its keyword arguments are its options."""

from __future__ import annotations

from collections.abc import Callable

from kvsim.costs.fixed import Fixed
from kvsim.costs.hosted import Hosted
from kvsim.costs.profile import Measured
from kvsim.costs.roofline import Roofline
from kvsim.costs.served import Served
from kvsim.protocols import CostModel

COST_MODELS: dict[str, Callable[..., CostModel]] = {
    "fixed": Fixed,
    "hosted": Hosted,
    "profile": Measured,
    "roofline": Roofline,
    "served": Served,
}
"""Cost models by the name that ``--cost-model`` takes."""

__all__ = ["COST_MODELS", "Fixed", "Hosted", "Measured", "Roofline", "Served"]
