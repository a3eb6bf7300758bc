"""Published tables and figures that kvsim replays, each a class in a file of its own.

An entry of :data:`REPRODUCTIONS` is a class whose keyword arguments are its options; ``trace``,
``lengths`` and ``seed`` are given to those that have them.
"""

from __future__ import annotations

from collections.abc import Callable

from kvsim.reproductions.findings import Reproduction
from kvsim.reproductions.mooncake_cache import MooncakeCache
from kvsim.reproductions.pagedattention_batching import Batching
from kvsim.reproductions.pagedattention_fig2 import Figure2
from kvsim.reproductions.pagedattention_rates import Rates
from kvsim.reproductions.pagedattention_sharing import Sharing
from kvsim.reproductions.pagedattention_swap import SwapOrRecompute
from kvsim.reproductions.radix_optimum import Optimum

REPRODUCTIONS: dict[str, Callable[..., Reproduction]] = {
    "pagedattention-fig2": Figure2,
    "pagedattention-batching": Batching,
    "pagedattention-rates": Rates,
    "pagedattention-sharing": Sharing,
    "pagedattention-swap": SwapOrRecompute,
    "mooncake-cache": MooncakeCache,
    "radixattention-optimum": Optimum,
}
