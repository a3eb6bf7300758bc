"""How a trace uses its blocks again, in numbers that fit on a page."""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvsim.analysis.accesses import Accesses
from kvsim.analysis.reuse import (
    Weighted,
    popularity,
    reuse_distances,
    reuse_times,
    sharing,
    working_set,
)

if TYPE_CHECKING:
    from kvsim.tables import Ints

QUANTILES = (0.1, 0.5, 0.9, 0.99)
POINTS = 60
"""Instants at which the working set is told."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """The reuse of a trace, whatever cache it meets. ``None`` stands for what does not exist."""

    used_once: float | None
    """Share of the blocks that are never used again."""
    most_uses: int
    """Of the most popular block."""
    reuses_of_top_tenth: float | None
    """Share of all reuses that the most popular tenth of the blocks have."""
    popularity: dict[str, list[int]]
    """``uses`` that occur, and how many ``blocks`` have each."""
    reuse_distance_blocks: dict[str, float | None]
    """Quantiles over reused blocks: different blocks used meanwhile, which LRU needs to hold."""
    reuse_time_s: dict[str, float | None]
    """Quantiles over reused blocks: seconds between the two requests."""
    working_set: dict[str, object]
    """``window_s``, and by ``time_s`` the ``blocks`` used within it and those used ``ever``."""
    sharing: dict[str, object] | None
    """Blocks used again ``within`` the session that had used them, and ``across`` sessions, with the
    heaviest ``edges`` (from, to, blocks); ``None`` without sessions."""
    sharing_of_tenants: dict[str, object] | None
    """The same of tenants."""


def reuse_of(accesses: Accesses, window: float = 300.0) -> Reuse:
    """The reuse of a trace; ``window``: seconds that the working set looks back."""
    popular = popularity(accesses)
    recent = working_set(accesses, window, POINTS)
    return Reuse(
        _known(popular.used_once),
        popular.most,
        _known(popular.reuse_share(0.1)),
        {"uses": popular.uses.tolist(), "blocks": popular.blocks.tolist()},
        _quantiles(reuse_distances(accesses)),
        _quantiles(reuse_times(accesses)),
        {
            "window_s": window,
            "time_s": np.round(recent.time, 3).tolist(),
            "blocks": recent.recent.tolist(),
            "ever": recent.ever.tolist(),
        },
        _sharing(accesses, accesses.session, accesses.sessions),
        _sharing(accesses, accesses.tenant, accesses.tenants),
    )


def _quantiles(found: Weighted) -> dict[str, float | None]:
    return {f"p{share * 100:g}": _known(found.quantile(share)) for share in QUANTILES}


def _sharing(accesses: Accesses, group: Ints, names: Seq[str]) -> dict[str, object] | None:
    if not names:
        return None
    found = sharing(accesses, group, list(names))
    edges = zip(found.source, found.user, found.blocks, strict=True)
    return {"within": found.within, "across": found.across, "edges": [list(e) for e in edges]}


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
