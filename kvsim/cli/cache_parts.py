"""What quotas make of ``kvsim cache``: each tenant's hits, and what the bounds cost all together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kvsim.cli.output import note_absent

if TYPE_CHECKING:
    from rich.console import Console

    from kvsim.analysis.savings import TokenCost
    from kvsim.caching.parts import PartRow
    from kvsim.caching.study import Study
    from kvsim.core import Request

ROWS = 12
"""Tenants that the table shows; JSON has all."""


def read_shares(text: str, isolation: object) -> Mapping[str, float]:
    """The shares of ``--quotas``. ConfigError where blocks may be several tenants'."""
    from kvsim.quotas import check_isolation, read_quotas

    shares = read_quotas(text)
    assert isinstance(shares, Mapping)
    check_isolation(isolation or "global")
    return shares


def awaited(requests: Iterable[Request], shares: Mapping[str, float]) -> list[Request]:
    """All requests; tenants with a quota who are in none are named on stderr."""
    from kvsim.quotas import Awaited

    named = Awaited(shares)
    found = list(named.watch(requests))
    note_absent(named.absent)
    return found


def costs(found: Study, rows: Sequence[PartRow], cost: TokenCost | None) -> list[dict[str, object]]:
    """What all tenants together lose against one cache without quotas, by policy and capacity."""
    from dataclasses import asdict

    from kvsim.analysis.savings import savings
    from kvsim.caching.parts import ALL

    undivided = {(row.policy, row.capacity): row for row in found.rows}
    lines = []
    for row in rows:
        if row.tenant != ALL:
            continue
        lost = undivided[row.policy, row.capacity].hit_tokens - row.hit_tokens
        line = {"policy": row.policy, "capacity": row.capacity, "hit_tokens": lost}
        if cost is not None:
            line |= asdict(savings(lost, found.requests, cost))
        lines.append(line)
    return lines


def print_costs(found: Study, rows: Sequence[PartRow], cost: TokenCost, console: Console) -> None:
    """What all tenants together pay for the quotas."""
    from kvsim.cli.cache_tables import savings_table

    console.print(savings_table("quotas cost", costs(found, rows, cost), "+,.4g"))


def print_parts(found: Study, rows: Sequence[PartRow], console: Console) -> None:
    """Token hit rates by capacity and tenant, a column for each policy, and its change."""
    from rich.table import Table

    policies = list(dict.fromkeys(row.policy for row in rows))
    table = Table("with quotas", "tenant", box=None, pad_edge=False)
    for title in ("blocks", "prompt tokens", *policies):
        table.add_column(title, justify="right")
    for cells in _lines(found, rows, policies):
        table.add_row(*cells)
    console.print("", table, sep="\n")
    console.print("In parentheses: percentage points against the same cache without quotas.")


def _lines(found: Study, rows: Sequence[PartRow], policies: Sequence[str]) -> Iterator[list[str]]:
    from kvsim.caching.parts import ALL
    from kvsim.cli.cache_tables import percent

    undivided = {(row.policy, row.capacity): row.token_hit_rate or 0.0 for row in found.rows}
    named = {(row.policy, row.capacity, row.tenant): row for row in rows}
    tenants = list(dict.fromkeys(row.tenant for row in rows))
    for capacity in dict.fromkeys(row.capacity for row in rows):
        for tenant in tenants[: ROWS + 1]:
            own = [named[policy, capacity, tenant] for policy in policies]
            rates = [percent(row.token_hit_rate) for row in own]
            if tenant == ALL:
                changes = (
                    100 * ((row.token_hit_rate or 0.0) - undivided[row.policy, capacity])
                    for row in own
                )
                rates = [f"{r} ({c:+z.2f})" for r, c in zip(rates, changes, strict=True)]
            blocks = "" if own[0].capacity_blocks is None else f"{own[0].capacity_blocks:,}"
            yield [capacity, tenant, blocks, f"{own[0].prompt_tokens:,}", *rates]
    if len(tenants) > ROWS + 1:
        yield ["", f"{len(tenants) - ROWS - 1:,} more"]
