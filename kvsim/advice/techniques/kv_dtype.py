"""Keys and values in fewer bits."""

from __future__ import annotations

from dataclasses import dataclass

from kvsim.advice.comparison import Comparison
from kvsim.advice.techniques.technique import Reason, Trial, memory_pressure, of_fewer_bits
from kvsim.catalog import load_model
from kvsim.layout import KVLayout
from kvsim.scenario import Scenario


@dataclass(frozen=True, slots=True)
class KVDtype:
    """A narrower KV cache than the deployment's."""

    dtype: str
    name: str
    price: str = "quality"

    def trial(self, scenario: Scenario) -> Trial | Reason:
        """As deployed against the narrower type."""
        model = load_model(scenario.model)
        now = KVLayout(model, scenario.kv_cache_dtype)
        if now.slot <= KVLayout(model, self.dtype).slot:
            return Reason(f"the KV cache is {now.dtype} already")
        return Trial({}, {"kv_cache_dtype": self.dtype})

    def reason(self, seen: Comparison) -> Reason:
        """What the smaller cache changes; what it does to answers is not simulated."""
        caution, pressure = of_fewer_bits(seen), memory_pressure(seen)
        if seen.verdict == "inert":
            return Reason(f"{pressure}, and reading them is little of an iteration; {caution}")
        return Reason(f"a token has fewer bytes to be held and read; {pressure}; {caution}")
