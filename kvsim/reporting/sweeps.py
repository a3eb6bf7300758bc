"""The report on a sweep: which of its configurations is best, and what the others are like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kvsim import __version__
from kvsim.errors import ConfigError
from kvsim.reporting import money, resources, service, trust
from kvsim.reporting.alternative import Alternative, Terms, ranked
from kvsim.reporting.document import (
    Cell,
    Code,
    Column,
    Document,
    Paragraph,
    Point,
    Section,
    Summary,
    Table,
    bullets,
    section,
    sections,
    sentences,
)
from kvsim.reporting.ranking import pareto_figure, ranking
from kvsim.reporting.reproduction import shared_settings
from kvsim.reporting.screen import answer, summary_of
from kvsim.reporting.workload import trace_of, workload
from kvsim.runs import RunResult, load_run
from kvsim.sweeping.configuration import described, shown
from kvsim.sweeping.drive import RUNS
from kvsim.sweeping.results import Row

SHORTER = {"tensor_parallel_size": "TP", "pipeline_parallel_size": "PP"}
SHOWN = 12
"""Configurations that are described beside the best."""


def of_sweep(folder: Path, rows: Sequence[Row], terms: Terms, command: str) -> Document:
    """The document of a sweep; the best configuration in depth if its run was kept."""
    found = {row.entry.position: alternative(folder, row, terms) for row in rows if row.metrics}
    title = f"Sweep {folder.resolve().name}: {len(rows)} configurations"
    facts = (f"kvsim {__version__}", f"{len(found)} of {len(rows)} finished")
    if not found:
        nothing = Summary(
            "No configuration has a result yet.", "open", (Point("Risk", counts(rows)),)
        )
        return Document(title, facts, nothing, sections(failures(rows), again(command, [])))
    for one in found.values():
        require_judged(folder, one)
    order = ranked(list(found.values()))
    best = order[0]
    return Document(
        title=title,
        facts=facts,
        summary=summary_of(best, f"Best: {best.name}: {answer(best)}", order),
        sections=sections(
            section("The best configurations", ranking(order[:SHOWN]), pareto_figure(order)),
            *depth(best),
            resources.use_of_several([(one.mark, one.summary) for one in order[:SHOWN]]),
            money.costs(order[:SHOWN]),
            matrix(rows, found),
            failures(rows),
            assumptions(best, order),
            again(command, rows),
        ),
    )


def alternative(folder: Path, row: Row, terms: Terms) -> Alternative:
    """A configuration that has a result."""
    entry = row.entry
    told = ", ".join(setting(name, value) for name, value in entry.point.items())
    name = f"#{entry.position + 1} {told}".rstrip()
    return Alternative(name, entry.scenario, row.metrics | memory(row), terms, kept(folder, row))


def require_judged(folder: Path, one: Alternative) -> None:
    """ConfigError if single requests are to be judged, of which the ledger counted other ones."""
    wanted = one.objective
    if wanted is None or wanted.attainment is None or one.attainment is not None:
        return
    own = one.scenario.get("slo")
    limits = own.items() if isinstance(own, Mapping) else ()
    ran = ", ".join(f"{name}={limit:g}s" for name, limit in limits) or "nothing"
    raise ConfigError(
        f"{folder}: {one.name}: requests were held to {ran} and cannot be counted by other limits; "
        "accepted: the same, limits of the run like --slo ttft_p99=2s, or a sweep with --keep-runs"
    )


def setting(name: str, value: object) -> str:
    """What varies: a number with what it counts, a name alone."""
    last = name.rpartition(".")[2]
    leaf = SHORTER.get(last, last.replace("_", " "))
    return shown(value) if isinstance(value, str | dict) else f"{leaf} {shown(value)}"


def memory(row: Row) -> dict[str, object]:
    """The division of memory, as a run's own summary has it."""
    assert row.entry.result is not None
    summary = row.entry.result["summary"]
    assert isinstance(summary, dict)
    return {"kv_memory": summary.get("kv_memory")}


def kept(folder: Path, row: Row) -> RunResult | None:
    """The run of a configuration, if the sweep kept runs."""
    path = folder / RUNS / row.entry.key.name
    return load_run(path) if path.is_dir() else None


def depth(best: Alternative) -> list[Section | None]:
    """Workload, latency and utilisation of the best, as for any run."""
    if best.result is None:
        said = "Curves need the runs themselves: kvsim sweep --keep-runs keeps them."
        return [section("The best in depth", Paragraph(said))]
    limits = best.objective.limits if best.objective else {}
    return [
        workload(*trace_of(best.result.manifest), best.result.requests),
        service.latency_of_one(best.result, limits),
        resources.use_of_one(best.result),
    ]


def matrix(rows: Sequence[Row], found: dict[int, Alternative]) -> Section | None:
    """Every configuration with its settings."""
    names = list(dict.fromkeys(name for row in rows for name in row.entry.point))
    columns = (
        Column("#", "count"),
        *(Column(name.replace("_", " ")) for name in names),
        Column("status"),
        Column("within limits", "fine share"),
        Column("$/1M out", "cents"),
        Column("requests/s", "number"),
        Column("TTFT p99 ms", "ms"),
        Column("TPOT p99 ms", "ms"),
        Column("hashes"),
    )
    return section(
        "All configurations", Table(columns, tuple(_line(row, names, found) for row in rows))
    )


def _line(row: Row, names: Sequence[str], found: dict[int, Alternative]) -> tuple[Cell, ...]:
    entry = row.entry
    settings = [shown(entry.point[name]) if name in entry.point else None for name in names]
    one = found.get(entry.position)
    if one is None:
        return (entry.position + 1, *settings, entry.status, *(None,) * 5, entry.key.name)
    numbers = map(one.number, ("request_throughput", "p99_ttft_ms", "p99_tpot_ms"))
    per = one.costs.per_million_output_tokens
    return (
        entry.position + 1,
        *settings,
        entry.status,
        one.attainment,
        per,
        *numbers,
        entry.key.name,
    )


def counts(rows: Sequence[Row]) -> str:
    """How many configurations are in which state."""
    states = [row.entry.status for row in rows]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)) + "."


def failures(rows: Sequence[Row]) -> Section | None:
    """What has no result, and why."""
    missing = [row.entry for row in rows if not row.metrics]
    said = [
        f"{described(one.position + 1, one.point)} {one.status}{f': {one.error}' if one.error else ''}"
        for one in missing
    ]
    return section("Without a result", bullets(said))


def assumptions(best: Alternative, all_of_them: Sequence[Alternative]) -> Section | None:
    """What a reader accepts."""
    labels = dict.fromkeys(str(one.summary.get("cost_model")) for one in all_of_them)
    load = trust.load_of(best.result) if best.result else None
    said = [text for label in labels for text in trust.calibration(label, load)]
    return section(
        "Assumptions and calibration",
        sentences([*said, *trust.run_assumptions(best.scenario, best.summary)]),
    )


def again(command: str, rows: Sequence[Row]) -> Section | None:
    """What makes the same numbers again."""
    traces = dict.fromkeys(f"{row.entry.trace}: {row.entry.key.trace}" for row in rows)
    return section(
        "Reproduce",
        Code(command),
        shared_settings([row.entry.scenario for row in rows]),
        bullets([f"SHA-256 of {Path(text).name}" for text in traces]),
    )
