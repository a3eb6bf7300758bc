"""The report on runs: one in depth, several side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kvsim import __version__
from kvsim.export import names
from kvsim.reporting import money, resources, service, trust
from kvsim.reporting.alternative import Alternative, Terms, of_run, ranked
from kvsim.reporting.document import (
    Column,
    Document,
    Paragraph,
    Section,
    Table,
    bullets,
    section,
    sections,
    sentences,
)
from kvsim.reporting.ranking import pareto_figure, ranking
from kvsim.reporting.reproduction import reproduction
from kvsim.reporting.screen import answer, summary_of
from kvsim.reporting.workload import trace_of, workload

if TYPE_CHECKING:
    from kvsim.runs import RunResult

SEVERAL = 6
"""Runs up to which curves are drawn into one panel."""


def of_runs(results: Sequence[RunResult], terms: Terms, command: str) -> Document:
    """The document of one run, or the comparison of several."""
    found = [of_run(run, name, terms) for run, name in zip(results, names(results), strict=True)]
    return of_one(found[0], command) if len(found) == 1 else of_several(found, command)


def of_one(run: Alternative, command: str) -> Document:
    """A run in depth."""
    assert run.result is not None
    trace, sha256 = trace_of(run.result.manifest)
    limits = run.objective.limits if run.objective else {}
    served = len(run.result.requests.served()) > 0
    return Document(
        title=f"{run.scenario.get('model')} on {run.gpus} × {money.label(run)}: {run.name}",
        facts=facts(run.result.manifest),
        summary=summary_of(run, answer(run), [run]),
        sections=sections(
            workload(trace, sha256, run.result.requests),
            service.latency_of_one(run.result, limits) if served else None,
            section("Throughput", throughput(run)),
            resources.use_of_one(run.result),
            money.costs([run]),
            assumptions([run]),
            reproduction(tabled([run]), command),
        ),
    )


def of_several(runs: Sequence[Alternative], command: str) -> Document:
    """Runs side by side, the best first."""
    order = ranked(runs)
    best = order[0]
    shown = [(one.mark, one.result) for one in order[:SEVERAL] if one.result is not None]
    limits = best.objective.limits if best.objective else {}
    left_out = f"Curves are drawn for the best {SEVERAL}." if len(runs) > SEVERAL else None
    return Document(
        title=f"{len(runs)} runs compared",
        facts=(f"kvsim {__version__}",),
        summary=summary_of(best, f"{best.name}: {answer(best)}", order),
        sections=sections(
            section("Alternatives", ranking(order), pareto_figure(order)),
            service.latency_of_several(shown, limits),
            resources.use_of_several([(one.mark, one.summary) for one in order[: 2 * SEVERAL]]),
            section("Notes on curves", Paragraph(left_out)) if left_out else None,
            money.costs(order),
            *workloads(order),
            assumptions(order),
            reproduction(tabled(order), command),
        ),
    )


def workloads(runs: Sequence[Alternative]) -> list[Section | None]:
    """The trace, once if it is the same for all."""
    traces = {
        str(trace_of(run.result.manifest)): run.result for run in runs if run.result is not None
    }
    if len(traces) == 1:
        [result] = traces.values()
        return [workload(*trace_of(result.manifest), result.requests)]
    said = "These runs served different traces: what one costs says little about another."
    listed = [f"{name}: SHA-256 {sha256}" for name, sha256 in map(_trace, traces.values())]
    return [section("Workload", Paragraph(said), bullets(listed))]


def _trace(result: RunResult) -> tuple[str, object]:
    return trace_of(result.manifest)


def facts(manifest: Mapping[str, object]) -> tuple[str, ...]:
    """Small print about a run."""
    name, _ = trace_of(manifest)
    return (
        f"trace {name}",
        f"kvsim {manifest.get('kvsim_version')}",
        f"scenario {str(manifest.get('scenario_hash'))[:12]}",
    )


def assumptions(runs: Sequence[Alternative]) -> Section | None:
    """What a reader accepts, and within what times were measured."""
    domain: list[str] = []
    for run in runs[:SEVERAL]:
        load = trust.load_of(run.result) if run.result else None
        domain += trust.calibration(str(run.summary.get("cost_model")), load)
    said = [text for run in runs for text in trust.run_assumptions(run.scenario, run.summary)]
    return section("Assumptions and calibration", sentences([*domain, *said]))


def tabled(runs: Sequence[Alternative]) -> dict[str, RunResult]:
    """The runs themselves, by name."""
    return {run.name: run.result for run in runs if run.result}


def throughput(run: Alternative) -> Table:
    """Work per second, per GPU and as a user sees it."""
    keys = ("request_throughput", "request_goodput", "output_throughput", "total_token_throughput")
    columns = (
        "requests/s",
        "requests/s within limits",
        "output tokens/s",
        "all tokens/s",
        "output tokens/s/GPU",
        "tokens/s that a user sees",
    )
    numbers = (*(run.number(key) for key in keys), run.output_per_gpu, run.speed)
    return Table(tuple(Column(title, "number") for title in columns), (numbers,))
