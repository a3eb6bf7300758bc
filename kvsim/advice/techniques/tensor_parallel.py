"""Each layer on twice as many GPUs."""

from __future__ import annotations

from kvsim.advice.comparison import Comparison
from kvsim.advice.techniques.technique import Reason, Trial
from kvsim.catalog import load_model
from kvsim.scenario import Scenario
from kvsim.sizing import tensor_parallel_sizes


class TensorParallel:
    """Twice the GPUs of a replica; throughput is per GPU, so it must pay for them."""

    name = "tensor parallel, twice the GPUs"
    price = "GPUs"

    def trial(self, scenario: Scenario) -> Trial | Reason:
        """As deployed against the next size that the model can be split into."""
        twice = 2 * scenario.tensor_parallel_size
        if twice not in set(tensor_parallel_sizes(load_model(scenario.model))):
            return Reason(f"the model cannot be split into {twice}")
        return Trial({}, {"tensor_parallel_size": twice})

    def reason(self, seen: Comparison) -> Reason:
        """Faster iterations against GPUs that could have served other requests."""
        size = seen.with_it.scenario.tensor_parallel_size
        faster = seen.before("mean_tpot_ms") / (seen.after("mean_tpot_ms") or 1)
        return Reason(f"{size} GPUs make a token {faster:.2f} times as fast, not 2 times")
