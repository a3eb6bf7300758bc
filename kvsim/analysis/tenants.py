"""What each tenant got from a run, and what keeping tenants apart costs.

Pure functions of tables and summaries. A tenant's numbers are those of its served requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from kvsim.analysis.distribution import Distribution
from kvsim.analysis.latency import latencies
from kvsim.analysis.savings import TokenCost, savings
from kvsim.tables import RequestTable

MOST_NAMED = 100
"""Tenants that a summary names: those with the most prompt tokens."""


class _Account:
    """Sums of one tenant."""

    __slots__ = ("cached", "prompt", "requests", "ttft")

    def __init__(self) -> None:
        self.requests = self.prompt = self.cached = 0
        self.ttft = Distribution()

    def add(self, served: RequestTable) -> None:
        self.requests += len(served)
        self.prompt += int(served.prompt_tokens.sum())
        self.cached += int(served.cached_tokens.sum())
        self.ttft.add(latencies(served)["ttft"])


class Tenants:
    """Adds up what each tenant got, batch by batch; requests of nobody count for nobody."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def add(self, served: RequestTable) -> None:
        """Count requests that were served."""
        if any(served.tenant):
            for tenant, rows in _parts(served):
                self._accounts.setdefault(tenant, _Account()).add(rows)

    def summary(self) -> dict[str, dict[str, float]]:
        """``tenant_requests`` and the like, each by tenant; empty where no request names one."""
        if not self._accounts:
            return {}
        largest = sorted(self._accounts.items(), key=lambda item: (-item[1].prompt, item[0]))
        named = dict(largest[:MOST_NAMED])
        waits = {tenant: one.ttft.statistics((99,)) for tenant, one in named.items()}
        return {
            "tenant_requests": {tenant: one.requests for tenant, one in named.items()},
            "tenant_prompt_tokens": {tenant: one.prompt for tenant, one in named.items()},
            "tenant_prefix_cache_hit_rate": {
                tenant: one.cached / one.prompt for tenant, one in named.items()
            },
            "tenant_mean_ttft_ms": {t: wait.mean * 1e3 for t, wait in waits.items() if wait},
            "tenant_p99_ttft_ms": {
                t: wait.percentiles[0] * 1e3 for t, wait in waits.items() if wait
            },
        }


def _parts(served: RequestTable) -> Iterator[tuple[str, RequestTable]]:
    """The rows of each tenant."""
    owned = served.where([tenant is not None for tenant in served.tenant])
    tenants, which, counts = np.unique(
        np.array(owned.tenant, dtype=object), return_inverse=True, return_counts=True
    )
    places = np.split(np.argsort(which, kind="stable"), np.cumsum(counts)[:-1])
    for tenant, rows in zip(tenants.tolist(), places, strict=True):
        yield tenant, owned.take(rows)


class IsolationCost(NamedTuple):
    """What a run lacks against the same one in which everybody shares prefixes."""

    hit_rate: float
    """Of prompt tokens: the share that had to be computed and was found otherwise."""
    mean_ttft_ms: float
    """Longer by this."""
    gpu_hours: float
    """Of computing what would have been found, on engines that do nothing else meanwhile."""
    usd: float
    """Price of these GPU hours."""


def isolation_cost(
    run: Mapping[str, object], shared: Mapping[str, object], token: TokenCost
) -> IsolationCost:
    """The difference between the summaries of two runs of one trace."""
    lost = _number(shared, "prefix_cache_hits") - _number(run, "prefix_cache_hits")
    dearer = savings(round(lost), 0, token)
    return IsolationCost(
        _number(shared, "prefix_cache_hit_rate") - _number(run, "prefix_cache_hit_rate"),
        _number(run, "mean_ttft_ms") - _number(shared, "mean_ttft_ms"),
        dearer.gpu_hours,
        dearer.usd,
    )


def _number(summary: Mapping[str, object], key: str) -> float:
    value = summary.get(key)
    return float(value) if isinstance(value, int | float) else 0.0
