"""What isolation costs and what each tenant got, beside the tables of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from kvsim.runs import RunResult
    from kvsim.scenario import Scenario

COST = "isolation_cost"
ROWS = 12
"""Tenants that a table shows; a summary names more."""


def cost_of(result: RunResult, results: Sequence[RunResult]) -> RunResult:
    """The run with what its isolation costs, if one of ``results`` is the same without it."""
    from kvsim.analysis.tenants import isolation_cost
    from kvsim.catalog import load_gpu, load_model
    from kvsim.cli.cache import token_cost
    from kvsim.layout import KVLayout
    from kvsim.scenario import Scenario

    scenario = Scenario.model_validate(result.manifest["scenario"])
    shared = next((one for one in results if _is_shared(one, scenario)), None)
    if shared is None or shared is result:
        return result
    sizes = scenario.tensor_parallel_size, scenario.pipeline_parallel_size
    layout = KVLayout(load_model(scenario.model), scenario.kv_cache_dtype, *sizes)
    token = token_cost(layout, load_gpu(scenario.gpu), _mean_prompt(result))
    cost = isolation_cost(result.summary, shared.summary, token)
    result.summary = {**result.summary, COST: cost._asdict()}
    return result


def _mean_prompt(result: RunResult) -> int:
    tokens, requests = result.summary["total_input_tokens"], result.summary["completed"]
    assert isinstance(tokens, int)
    assert isinstance(requests, int)
    return max(1, round(tokens / max(1, requests)))


def _is_shared(run: RunResult, scenario: Scenario) -> bool:
    """Whether a run is the scenario with everybody sharing."""
    wanted = {**scenario.model_dump(mode="json"), "isolation": "global", "quotas": None}
    return run.manifest["scenario"] == wanted


def print_tenants(results: Sequence[RunResult], names: Sequence[str], console: Console) -> None:
    """What isolation costs each run, and its hits and latency by tenant, where there are any."""
    named = dict(zip(names, (result.summary for result in results), strict=True))
    if any(COST in summary for summary in named.values()):
        console.print("", _costs(named), sep="\n")
    if any("tenant_requests" in summary for summary in named.values()):
        console.print("", _by_tenant(named), sep="\n")


def _costs(summaries: Mapping[str, Mapping[str, object]]) -> Table:
    from rich.table import Table

    table = Table("against global", box=None, pad_edge=False, header_style="bold")
    for title in ("prefix hit rate", "mean TTFT, ms", "GPU hours", "dollars"):
        table.add_column(title, justify="right")
    for name, summary in summaries.items():
        cost = summary.get(COST)
        if isinstance(cost, dict):
            table.add_row(
                name,
                f"{-100 * cost['hit_rate']:+z.1f} points",
                f"{cost['mean_ttft_ms']:+z,.2f}",
                f"{cost['gpu_hours']:+z.4g}",
                f"{cost['usd']:+z.4g}",
            )
    return table


def _by_tenant(summaries: Mapping[str, Mapping[str, object]]) -> Table:
    """Hit rate and mean TTFT of the largest tenants, a pair of columns for each run."""
    from rich.table import Table

    first = next(iter(summaries.values()))
    requests = _numbers(first, "tenant_requests")
    table = Table("tenant", box=None, pad_edge=False, header_style="bold")
    table.add_column("requests", justify="right")
    for name in summaries:
        prefix = f"{name}: " if len(summaries) > 1 else ""
        table.add_column(f"{prefix}hits", justify="right")
        table.add_column(f"{prefix}TTFT, ms", justify="right")
    for tenant in list(requests)[:ROWS]:
        cells = []
        for summary in summaries.values():
            hit = _numbers(summary, "tenant_prefix_cache_hit_rate").get(tenant)
            wait = _numbers(summary, "tenant_mean_ttft_ms").get(tenant)
            cells += ["-" if hit is None else f"{hit:.1%}", "-" if wait is None else f"{wait:,.2f}"]
        table.add_row(tenant, f"{requests[tenant]:,.0f}", *cells)
    if len(requests) > ROWS:
        table.add_row(f"{len(requests) - ROWS:,} more")
    return table


def _numbers(summary: Mapping[str, object], key: str) -> Mapping[str, float]:
    value = summary.get(key)
    return value if isinstance(value, dict) else {}
