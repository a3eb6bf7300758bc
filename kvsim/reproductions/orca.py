"""The engines that the PagedAttention paper compares, serving OPT-13B from one A100-40GB.

The pool has 12 GiB, which is 15,728 slots of 819,200 bytes: with ranges of 2,048 slots that leaves
8.9 % of it without use, as the paper's Figure 2 says of Orca (Max).
"""

from __future__ import annotations

from kvsim.scenario import Scenario

LAYERS = 40
BLOCKS = 983
"""Blocks of 16 slots in 12 GiB."""
SYSTEMS: dict[str, dict[str, object]] = {
    "Orca (Max)": {"allocator": "buddy", "reservation": "max"},
    "Orca (Pow2)": {"allocator": "buddy", "reservation": "pow2"},
    "Orca (Oracle)": {"allocator": "buddy", "reservation": "oracle"},
    "vLLM": {"allocator": "paged", "enable_prefix_caching": False},
}


def opt_13b(host: float = 0.0, **settings: object) -> Scenario:
    """OPT-13B on one A100-40GB under iteration-level scheduling, as far as not said otherwise.

    ``host``: seconds that each iteration takes on top of the roofline's.
    """
    return Scenario.model_validate(
        {
            "model": "opt-13b",
            "gpu": "a100-40gb",
            "num_gpu_blocks_override": BLOCKS,
            "max_model_len": 2048,
            "max_num_seqs": 256,
            "scheduler": "continuous",
            "cost_model": {"name": "roofline", "layer_overhead": 42e-6 + host / LAYERS},
            **settings,
        }
    )


ENGINE = (
    "OPT-13B on an A100-40GB, 15,728 slots of KV (12 GiB of 819,200 bytes), in blocks of 16 if not "
    "said otherwise",
    "iteration times of the roofline with the A100's data-sheet rates",
)
