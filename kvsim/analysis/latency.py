"""The latencies of single requests and whether they meet their objectives.

Definitions are those of ``docs/METRICS.md``; every array has one entry for each served request,
NaN where a latency does not exist (the time per output token of a one-token answer).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from kvsim.tables import RequestTable

if TYPE_CHECKING:
    from kvsim.tables import Flags, Floats

LATENCIES = ("ttft", "tpot", "e2el", "queue_time", "normalized_latency")
"""Those that a single request has; ``itl`` belongs to gaps between tokens."""


def latencies(served: RequestTable) -> dict[str, Floats]:
    """Seconds by name of :data:`LATENCIES`, for a table without rejected requests."""
    answer = served.output_tokens.astype(np.float64)
    ttft = served.first_token - served.arrival
    e2el = served.finished - served.arrival
    decoding = served.finished - served.first_token
    return {
        "ttft": ttft,
        "tpot": _ratio(decoding, answer - 1),
        "e2el": e2el,
        "queue_time": served.scheduled - served.arrival,
        "normalized_latency": _ratio(e2el, answer),
    }


def meets(measured: Mapping[str, Floats], slos: Mapping[str, float]) -> Flags:
    """Which requests meet every objective; a latency that does not exist breaks none."""
    met = np.ones(len(measured["e2el"]), dtype=bool)
    for name, limit in slos.items():
        met &= ~(measured[name] > limit)
    return met


def _ratio(time: Floats, tokens: Floats) -> Floats:
    return np.divide(time, tokens, out=np.full_like(time, np.nan), where=tokens > 0)
