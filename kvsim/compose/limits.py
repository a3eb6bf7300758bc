"""How much is served at once, and what memory that leaves for the KV cache."""

from __future__ import annotations

from kvsim.catalog.hardware import Gpu
from kvsim.errors import CapacityError
from kvsim.layout import KVLayout
from kvsim.scenario import Scenario
from kvsim.sizing import Limits, MemoryPlan, plan_memory, served_limits

FEWEST_SEQUENCES = 128
"""How far the default number of sequences is lowered for lack of memory."""


def resolved(scenario: Scenario, layout: KVLayout, gpu: Gpu) -> Scenario:
    """The scenario with the limits that ``vllm serve`` takes on the GPU where none are given.

    Sampling sets memory aside for every sequence. Where that leaves no pool, the default number of
    sequences is halved, down to 128, until it does; vLLM would stop and ask its user for that.
    """
    tokens, sequences = served_limits(gpu)
    tokens = scenario.max_num_batched_tokens or tokens
    chosen = scenario.changed(
        max_num_batched_tokens=tokens,
        max_num_seqs=scenario.max_num_seqs or min(sequences, tokens),
    )
    while scenario.max_num_seqs is None and not has_pool(chosen, layout, gpu):
        fewer = (chosen.max_num_seqs or 0) // 2
        if fewer < FEWEST_SEQUENCES:
            break
        chosen = chosen.changed(max_num_seqs=fewer)
    return chosen


def has_pool(scenario: Scenario, layout: KVLayout, gpu: Gpu) -> bool:
    """Whether anything is left for the KV cache."""
    try:
        memory_plan(scenario, layout, gpu)
    except CapacityError:
        return False
    return True


def memory_plan(scenario: Scenario, layout: KVLayout, gpu: Gpu) -> MemoryPlan:
    """How a GPU's memory is divided; raises CapacityError if nothing is left for the KV cache."""
    assert scenario.max_num_seqs is not None
    assert scenario.max_num_batched_tokens is not None
    return plan_memory(
        layout,
        gpu,
        Limits(
            scenario.block_size,
            scenario.gpu_memory_utilization,
            scenario.max_num_batched_tokens,
            scenario.max_num_seqs,
            scenario.weight_dtype,
        ),
    )
