"""Advice on the console."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from kvsim.advice.answer import Advice, Finding, Row, Together
from kvsim.advice.comparison import amount, measures

STYLES = {
    "helps": "green",
    "makes it fit": "green",
    "hurts": "red",
    "trade-off": "yellow",
    "inert": "dim",
    "not enough evidence": "dim",
}


OF_USE = ("helps", "trade-off", "makes it fit")


def print_advice(advice: Advice, console: Console) -> None:
    """The table, and for each situation what every technique did and why."""
    scenario = advice.scenario
    console.print(
        f"{advice.trace}: {scenario.model} on {scenario.gpu}; {advice.replays} replays, "
        f"{' and '.join(advice.times) or 'no'} times",
        style="bold",
        highlight=False,
    )
    console.print()
    console.print(overview(advice.rows), highlight=False)
    for row in advice.rows:
        console.print()
        details(row, console)


def overview(rows: Iterable[Row]) -> Table:
    """One line for each situation."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("situation")
    table.add_column("as deployed", justify="right")
    for name in ("in use and of use", "to be changed", "at the price of quality or GPUs"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(row.situation.name, *cells(row))
    return table


def cells(row: Row) -> list[str]:
    """The columns of a situation."""
    if row.base is None:
        return ["", str(row.lack)]
    if row.base.failure is not None:
        return ["", f"does not work: {row.base.failure}"]
    good = [one.technique.name for one in row.findings if one.in_use and of_use(one)]
    return [state(row), ", ".join(good) or "nothing", added(row.together), added(row.at_a_price)]


def of_use(one: Finding) -> bool:
    """Whether a technique in use does something, and nothing bad to what decides."""
    return one.verdict in OF_USE and (one.decisive is None or one.decisive.gain >= 0)


def state(row: Row) -> str:
    """What decides, as deployed."""
    assert row.base is not None
    assert row.facts is not None
    limited = bool(row.base.scenario.slo)
    decisive = measures(row.facts.clients, limited=limited)[0]
    value = row.base.number(decisive.key)
    return "-" if value is None else f"{amount(value)} {decisive.unit}"


def added(seen: Together | None) -> str:
    """Several changes with their effect on what decides."""
    if seen is None:
        return "nothing"
    effects = [str(change) for change in seen.changes if change.gain]
    guessed = f" (times {seen.times})" if "extrapolated" in seen.times else ""
    return f"{' + '.join(seen.names)}: {', '.join(effects) or 'no effect together'}{guessed}"


def details(row: Row, console: Console) -> None:
    """Every technique of a situation."""
    console.print(row.situation.name, style="bold", highlight=False)
    console.print(f"  {requests(row)}", highlight=False, soft_wrap=True)
    if row.needed is not None:
        console.print(f"  needs {row.needed}", highlight=False, soft_wrap=True)
    for one in row.findings:
        console.print(
            f"  {one.verdict:<19}  {line(one)}",
            style=STYLES[one.verdict],
            highlight=False,
            markup=False,
            soft_wrap=True,
        )


def requests(row: Row) -> str:
    """What was replayed."""
    if row.lack is not None or row.facts is None:
        return str(row.lack)
    known = row.facts
    who = "as recorded" if known.clients is None else f"{known.clients} at once"
    return (
        f"{known.requests:,} requests, {who}; prompts of {known.mean_prompt:,.0f} tokens on average "
        f"({known.shared:.0%} seen before), answers of {known.mean_output:,.0f}"
    )


def line(one: Finding) -> str:
    """A technique with what it changed, and why."""
    used = " (in use)" if one.in_use else ""
    changes = () if one.comparison is None else one.comparison.changes
    seen = "; ".join(str(change) for change in changes if change.gain)
    return f"{one.technique.name}{used}: {f'{seen} -- ' if seen else ''}{one.reason}"
