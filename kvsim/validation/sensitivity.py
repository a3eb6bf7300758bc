"""How much a replay's metrics depend on step times that are a little off."""

from __future__ import annotations

from collections.abc import Mapping

from kvsim.compose import simulate
from kvsim.planning.trial import faster, slowed
from kvsim.scenario import Scenario
from kvsim.validation.measured import SENSITIVE, SMALL

METRICS = (
    *(f"{kind}_{name}_ms" for name in ("ttft", "tpot", "itl", "e2el") for kind in ("mean", "p50", "p99")),
    "output_throughput",
    "mean_kv_cache_usage",
    "peak_kv_cache_usage",
)  # fmt: skip
"""Keys of a summary whose sensitivity is reported."""


def sensitivities(
    scenario: Scenario, trace: str, summary: Mapping[str, object]
) -> dict[str, float]:
    """Relative change of a run's metrics when every iteration takes 1 % longer.

    ``summary`` is that of the scenario's run over the trace, which is replayed once more.
    """
    slower = simulate(faster(scenario, 1 + SMALL), trace, keep=False).summary
    after, found = slowed(slower, 1 + SMALL), {}
    for name in METRICS:
        now, then = summary.get(name), after.get(name)
        if isinstance(now, float | int) and isinstance(then, float | int) and now:
            found[name] = then / now - 1
    return found


def shown(found: Mapping[str, float]) -> list[str]:
    """Lines that say so, with a star at what cannot be predicted well."""
    width = max(map(len, found), default=0)
    lines = [
        f"{name:{width}} {change:+z7.1%}{'*' if abs(change) > SENSITIVE else ''}"
        for name, change in found.items()
    ]
    return ["when every iteration takes 1 % longer (* more than 5 %: hard to predict)", *lines]
