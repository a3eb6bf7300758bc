"""Tables of the Mooncake papers that need nothing but the trace: its statistics and cache ratios."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from kvsim.errors import ConfigError
from kvsim.registry import blueprint
from kvsim.reproductions.findings import Findings, Lines, Row, published

if TYPE_CHECKING:
    from kvsim.caching.capacity import Capacity
    from kvsim.memory.eviction import MakePolicy

POLICIES = ("lru", "lfu", "length-aware")
BLOCKS = {f"{blocks:,} blocks": blocks for blocks in (1_000, 10_000, 30_000, 50_000, 100_000)}
PLATEAU, PLATEAU_TOKENS = "50 M tokens", 50_000_000
"""At which the paper finds the maximum reached."""
UNBOUNDED = "unbounded"


class MooncakeCache:
    """One prefix cache for all requests, block by block, without time."""

    title: ClassVar[str] = "Mooncake: the conversation trace and what a cache of it gives"
    source: ClassVar[str] = (
        "Mooncake FAST 2025, Table 2 and section 5.3.1; arXiv:2407.00079, Table 1 and section 4.2"
    )

    def __init__(self, *, trace: str | None = None) -> None:
        if trace is None:
            raise ConfigError(
                "mooncake-cache needs --trace: conversation_trace.jsonl of github.com/kvcache-ai/"
                "Mooncake, FAST25-release/traces"
            )
        self._trace = trace

    def run(self) -> Findings:
        """What the trace holds, and its blocks through caches."""
        from kvsim.analysis.reuse import popularity
        from kvsim.caching import accesses_of
        from kvsim.caching.study import study
        from kvsim.workload import open_trace, summarise

        summary = summarise(open_trace(self._trace))
        accesses = accesses_of(open_trace(self._trace))
        sizes = capacities(accesses.block_size)
        found = study(accesses, sizes, makers())
        tokens = {row.capacity: row.hit_tokens for row in found.rows if row.policy == "lru"}
        values: dict[str, float] = {
            "requests": summary.requests,
            "mean input tokens": round(summary.prompt_tokens.mean),
            "mean output tokens": round(summary.output_tokens.mean),
            "cache ratio, unbounded": 100 * tokens[UNBOUNDED] / found.prompt_tokens,
            "share of the maximum at 50 M tokens": 100 * tokens[PLATEAU] / tokens[UNBOUNDED],
            "blocks used once": 100 * popularity(accesses).used_once,
        }
        rates = {
            (row.policy, row.capacity): 100 * (row.usable_block_hit_rate or 0.0)
            for row in found.rows
            if row.capacity != PLATEAU
        }
        values |= {f"{policy}, {capacity}": rate for (policy, capacity), rate in rates.items()}
        known = published("mooncake-cache")
        rows = [Row(name, value, known.get(name)) for name, value in values.items()]
        curves = {
            policy: tuple((float(b), rates[policy, name]) for name, b in BLOCKS.items())
            for policy in POLICIES
        }
        chart = Lines(self.title, "blocks of 512 tokens", "% of blocks hit", curves, log=True)
        return Findings(tuple(rows), ASSUMPTIONS, chart)


def capacities(block_size: int) -> list[Capacity]:
    """Those of the paper's tables."""
    from kvsim.caching.capacity import Capacity

    named = [Capacity(name, blocks) for name, blocks in BLOCKS.items()]
    return [
        *named,
        Capacity(PLATEAU, PLATEAU_TOKENS // block_size),
        Capacity(UNBOUNDED, math.inf),
    ]


def makers() -> dict[str, MakePolicy]:
    """What makes each policy for a capacity."""
    from kvsim.memory.eviction.policies import EVICTIONS

    def maker(name: str) -> MakePolicy:
        plan = blueprint(f"eviction {name}", EVICTIONS[name], {}, {})
        return lambda capacity: plan.build(capacity=capacity)

    return {name: maker(name) for name in POLICIES}


ASSUMPTIONS = (
    "one cache for all requests; hits are prefix-contiguous whole blocks, over all prompt tokens for "
    "ratios of tokens and over all whole blocks for hit rates",
    "the last, partly filled block of a prompt never hits: the paper's 40 % and kvsim's ratio differ "
    "by what such a block would give",
    "the published hit rates by capacity and policy are of another trace, the 23,608 requests of the "
    "arXiv paper, which is not the one that is replayed: read them for the order of the policies",
)
