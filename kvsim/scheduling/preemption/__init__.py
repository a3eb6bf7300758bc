"""What becomes of the KV of a preempted sequence, each way in a file of its own."""

from __future__ import annotations

from collections.abc import Callable

from kvsim.protocols import Preemption
from kvsim.scheduling.preemption.auto import Auto
from kvsim.scheduling.preemption.recompute import Recompute
from kvsim.scheduling.preemption.swap import Swap

PREEMPTIONS: dict[str, Callable[..., Preemption]] = {
    "recompute": Recompute,
    "swap": Swap,
    "auto": Auto,
}
"""Ways by name; what takes a positional ``moves`` is given the engine's link to its host."""
