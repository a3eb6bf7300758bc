"""Weights in fewer bits."""

from __future__ import annotations

from dataclasses import dataclass

from kvsim.advice.comparison import Comparison
from kvsim.advice.techniques.technique import Reason, Trial, of_fewer_bits
from kvsim.catalog import load_model
from kvsim.catalog.model import weight_bits
from kvsim.scenario import Scenario


@dataclass(frozen=True, slots=True)
class WeightDtype:
    """Narrower weights than the deployment's."""

    dtype: str
    name: str
    price: str = "quality"

    def trial(self, scenario: Scenario) -> Trial | Reason:
        """As deployed against the narrower type."""
        model = load_model(scenario.model)
        given, _ = model.stored_as(scenario.weight_dtype)
        if weight_bits(given) <= weight_bits(self.dtype):
            return Reason(f"the weights are {given} already")
        return Trial({}, {"weight_dtype": self.dtype})

    def reason(self, seen: Comparison) -> Reason:
        """What a decoding step has to read; what it does to answers is not simulated."""
        caution = of_fewer_bits(seen)
        if seen.verdict == "inert":
            return Reason(f"reading the weights is too little of an iteration; {caution}")
        return Reason(f"every iteration reads all weights, now fewer bytes; {caution}")
