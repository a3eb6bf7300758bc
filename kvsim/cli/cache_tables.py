"""What ``kvsim cache`` prints: hit rates by capacity and policy, and what the hits are worth."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from kvsim.analysis.savings import TokenCost, savings
from kvsim.cli.output import PIPE_WIDTH

if TYPE_CHECKING:
    from kvsim.caching.parts import PartRow
    from kvsim.caching.study import Study


def print_table(
    found: Study, cost: TokenCost | None, parts: Sequence[PartRow] | None = None
) -> None:
    """Token hit rates by capacity and policy, the bounds, and what hits without its prefix."""
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)
    console.print(
        f"{found.requests:,} requests, {found.prompt_tokens:,} prompt tokens; {found.blocks:,} blocks "
        f"of {found.block_size} tokens, {found.distinct_blocks:,} different"
    )
    console.print(rates_table(found))
    console.print(
        f"Prompt tokens that need not be computed. No capacity gives more than "
        f"{percent(found.bounds[-1].token_hit_rate)} (bound: a cache without limit)."
    )
    if cost is not None:
        console.print(savings_table("policy", worth(found, cost), ",.2f"))
        console.print(
            f"Saved over the trace against no cache, by {cost.source} at "
            f"${cost.usd_per_gpu_hour:.2f} per GPU hour; TTFT of an idle engine."
        )
    for policy, useless in without_prefix(found).items():
        if useless:
            console.print(f"{policy}: up to {useless:,} cached blocks had lost their prefix")
    if parts is not None:
        from kvsim.cli.cache_parts import print_costs, print_parts

        print_parts(found, parts, console)
        if cost is not None:
            print_costs(found, parts, cost, console)


def rates_table(found: Study) -> Table:
    """Token hit rates, a line for each capacity, beside the bound on all policies."""
    policies = list(dict.fromkeys(row.policy for row in found.rows))
    table = Table(box=None, pad_edge=False)
    for title in ("capacity", "blocks", *policies, "optimum (bound)"):
        table.add_column(title, justify="right")
    rows = {(row.policy, row.capacity): row for row in found.rows}
    bounds = {bound.capacity: bound.token_hit_rate for bound in found.bounds}
    for capacity in dict.fromkeys(row.capacity for row in found.rows):
        one = rows[policies[0], capacity]
        blocks = "" if one.capacity_blocks is None else f"{one.capacity_blocks:,}"
        rates = [rows[policy, capacity].token_hit_rate for policy in policies]
        table.add_row(capacity, blocks, *map(percent, [*rates, bounds.get(capacity)]))
    return table


def without_prefix(found: Study) -> dict[str, int]:
    """By policy, the most blocks of a cache that were asked for, but not behind their prefix."""
    most: dict[str, int] = {}
    for row in found.rows:
        lost = row.any_hit_blocks - row.usable_hit_blocks
        most[row.policy] = max(lost, most.get(row.policy, 0))
    return most


def worth(found: Study, cost: TokenCost) -> list[dict[str, object]]:
    """What each row of the study saves."""
    return [
        {
            "policy": row.policy,
            "capacity": row.capacity,
            **asdict(savings(row.hit_tokens, found.requests, cost)),
        }
        for row in found.rows
    ]


def savings_table(title: str, lines: Iterable[Mapping[str, object]], form: str) -> Table:
    """GPU hours, dollars and latency of each cache, as ``form`` formats them."""
    table = Table(title, box=None, pad_edge=False)
    for column in ("capacity", "GPU hours", "dollars", "mean TTFT, ms"):
        table.add_column(column, justify="right")
    for line in lines:
        amounts = [format(line[key], form) for key in ("gpu_hours", "usd", "mean_ttft_ms")]
        table.add_row(str(line["policy"]), str(line["capacity"]), *amounts)
    return table


def percent(rate: float | None) -> str:
    """A rate as the table shows it."""
    return "-" if rate is None else f"{rate:.2%}"
