"""Schedulers: who runs in the next iteration, and the decode clock that they share."""

from __future__ import annotations

from kvsim.protocols import Scheduler
from kvsim.scheduling.chunked import Chunked
from kvsim.scheduling.continuous import Continuous
from kvsim.scheduling.prefill_first import PrefillFirst
from kvsim.scheduling.static import Static

SCHEDULERS: dict[str, type[Scheduler]] = {
    "static": Static,
    "continuous": Continuous,
    "chunked": Chunked,
    "prefill-first": PrefillFirst,
}
