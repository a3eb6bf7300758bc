"""Does paging halve the instances? Llama-3-70B in FP16 on eight A100, contiguous against paged.

A widely copied article says so, for 8 x A100 80 GB at the price of AWS p4d, and reckons $12,000 saved a
month. Here it is replayed, with the article's figures put right: p4d has 40 GB cards, the 80 GB machine
is p4de; the model has 8 KV heads, not 64, so a token takes 0.328 MB and not 2.62 MB.

    python reports/paging_70b.py > reports/paging_70b.md
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from kvsim.analysis.economics import HOURS_PER_MONTH
from kvsim.catalog import load_gpu
from kvsim.planning import Question, plan
from kvsim.planning.objective import read_objective
from kvsim.planning.prices import day
from kvsim.planning.unloaded import Engine
from kvsim.scenario import load
from kvsim.workload.generate import generate
from kvsim.workload.spec import WorkloadSpec
from kvsim.workload.writers import write_trace

AS_OF = date(2026, 11, 29)
OBJECTIVE = read_objective(["ttft=2s", "tpot=100ms"], 0.95)
SHARED: dict[str, object] = {"model": "llama-3-70b", "max_model_len": 8192}
"""The model's own longest context; seats and token budget as vLLM takes them on an A100."""
MACHINES = {"p4de.24xlarge": "a100-80gb", "p4d.24xlarge": "a100-40gb"}
MEMORIES: dict[str, dict[str, object]] = {
    "contiguous, longest reserved": {"allocator": "contiguous", "reservation": "max"},
    "contiguous, next power of two": {"allocator": "contiguous", "reservation": "pow2"},
    "paged": {"allocator": "paged", "enable_prefix_caching": False},
    "paged, prefix cache": {"allocator": "paged"},
}
ARTICLE_HEADS = 8
"""By how much the article overstates a token: 64 query heads in place of 8 KV heads."""


class Workload(NamedTuple):
    """A trace and how it is read."""

    title: str
    trace: str
    speedup: float


class Case(NamedTuple):
    """A workload on a machine with a memory."""

    workload: Workload
    machine: str
    memory: str
    overstated: bool = False
    """With the article's bytes per token."""


def long_answers() -> WorkloadSpec:
    """Short prompts and long answers, nothing shared: what fills memory most for its work."""
    return WorkloadSpec(
        requests=6000,
        rate=40.0,
        prompt="lognormal:150:0.8",
        output="lognormal:600:0.6",
        max_tokens=8192,
    )


def workloads(folder: Path) -> Iterator[Workload]:
    """Conversations that share prefixes, and long answers that do not."""
    chat = Path(__file__).resolve().parent.parent / "traces" / "chat.jsonl.gz"
    yield Workload("conversations (traces/chat.jsonl.gz, ten times as fast)", str(chat), 10.0)
    path = folder / "long_answers.jsonl.gz"
    write_trace(generate(long_answers(), 1), str(path))
    yield Workload("short prompts, answers of 600 tokens, 40 requests a second", str(path), 1.0)


def instances(case: Case, jobs: int) -> tuple[int | None, float, str]:
    """Instances that meet the objective, how many requests do, and what holds them back."""
    settings = {**SHARED, **MEMORIES[case.memory], "workload": {"speedup": case.workload.speedup}}
    gpu = MACHINES[case.machine]
    scenario = load(None, settings)
    if case.overstated:
        engine = Engine.of(scenario.changed(gpu=gpu, tensor_parallel_size=8))
        blocks = engine.memory.num_gpu_blocks // ARTICLE_HEADS
        scenario = load(None, {**settings, "num_gpu_blocks_override": blocks})
    question = Question(
        scenario,
        case.workload.trace,
        (gpu,),
        OBJECTIVE,
        AS_OF,
        tensor_parallel_sizes=(8,),
        token_budgets=(None,),
        max_gpus=800,
        explore=False,
    )
    found = plan(question, jobs=jobs)
    if not found.candidates:
        return None, 0.0, found.refused[0].reason
    best = found.candidates[0]
    assert best.outcome.summary is not None
    usage = best.outcome.summary["peak_kv_cache_usage"]
    verdict = best.outcome.summary["verdict"]
    return best.fleet.replicas, best.outcome.attainment, f"{usage:.0%} of memory at most; {verdict}"


def hourly(machine: str) -> list[tuple[str, float]]:
    """List prices of a machine by their day, oldest first, where they changed."""
    from kvsim.catalog import prices

    listed = [
        p for p in prices(MACHINES[machine], provider="aws", kind="on-demand") if p.sku == machine
    ]
    listed.sort(key=lambda price: (day(price) or date.min, price.date))
    seen: dict[float, str] = {}
    for price in listed:
        assert price.usd_per_hour is not None
        seen.setdefault(price.usd_per_hour, price.date.partition(" (")[0])
    return [(when, usd) for usd, when in seen.items()]


class Row(NamedTuple):
    """What one memory needs."""

    memory: str
    instances: int | None
    within: float
    remark: str


def measured(workload: Workload, machine: str, jobs: int, *, wrong: bool = False) -> list[Row]:
    """Every memory on one machine."""
    return [
        Row(memory, *instances(Case(workload, machine, memory, wrong), jobs)) for memory in MEMORIES
    ]


def table(rows: list[Row], machine: str) -> Iterator[str]:
    """Instances, and dollars a month at the oldest and the newest list price."""
    (then, dear), *_, (now, cheap) = hourly(machine)
    yield (
        f"| KV memory | instances | within limits | | $/month (price of {now}) | saved | saved at ${dear:.2f} "
        f"({then}) |"
    )
    yield "| --- | ---: | ---: | --- | ---: | ---: | ---: |"
    before = rows[0].instances
    for row in rows:
        if row.instances is None or before is None:
            yield f"| {row.memory} | none | | {row.remark} | | | |"
            continue
        hours = (before - row.instances) * HOURS_PER_MONTH
        yield (
            f"| {row.memory} | {row.instances} | {row.within:.1%} | {row.remark} | "
            f"${row.instances * cheap * HOURS_PER_MONTH:,.0f} | ${hours * cheap:,.0f} | "
            f"${hours * dear:,.0f} |"
        )
    yield ""


def finding(title: str, rows: list[Row]) -> str:
    """One line: what paging does to the number of instances."""
    reserved, rounded, paged, cached = (row.instances for row in rows)
    if reserved is None or paged is None:
        return f"- {title}: contiguous {reserved or 'never'}, paged {paged or 'never'}"
    halves = "paging halves them" if 2 * paged <= reserved else "paging does **not** halve them"
    if paged == reserved:
        halves = "paging alone saves **nothing**"
    return (
        f"- {title}: {reserved} contiguous, {paged} paged: {halves} (next power of two: {rounded}; "
        f"with a prefix cache: {cached})"
    )


def capacity() -> Iterator[str]:
    """How many KV tokens each machine holds."""
    yield "| machine | GPUs | KV tokens | sequences of 8,192 reserved | list price an hour, by date |"
    yield "| --- | --- | ---: | ---: | --- |"
    for machine, gpu in MACHINES.items():
        engine = Engine.of(load(None, {**SHARED, "gpu": gpu, "tensor_parallel_size": 8}))
        tokens = engine.memory.kv_tokens_capacity
        listed = "; ".join(f"${usd:,.2f} ({when})" for when, usd in hourly(machine))
        name = load_gpu(gpu).name
        yield f"| {machine} | 8 x {name} | {tokens:,} | {tokens // 8192} | {listed} |"
    yield ""


INTRODUCTION = """# Does paging halve the instances?

The claim, from an article on KV caches: paged instead of contiguous KV memory doubles the throughput of
Llama-3-70B (FP16, 8 x A100 80 GB), so half the p4d.24xlarge at $32.77 an hour do, and $12,000 a month
are saved. Replayed here: the smallest number of instances that meets the same objective with each
memory. The scheduler is the same for all, with the 256 seats and 2,048 tokens an iteration that vLLM takes
on an A100, so only the memory differs.

- Model: Llama-3-70B in 16 bits, one replica on the eight GPUs of an instance, at most 8,192 tokens.
- Objective: {objective}.
- Iteration times are {label}: a roofline, not measured on an A100.

Put right: p4d.24xlarge has eight A100 of **40** GB, the 80 GB machine is p4de.24xlarge. $32.77 was p4d's
list price until May 2025; it is $21.96 since. A token takes 2 x 80 layers x **8 KV heads** x 128 x 2 bytes
= 0.328 MB, not the 2.62 MB of 64 query heads. That throughput doubles is the article's assumption, not
a measurement.
"""


def report(jobs: int) -> Iterator[str]:
    """All of it, the findings first."""
    findings, tables = [], []
    with TemporaryDirectory(prefix="kvsim-") as folder:
        for workload in workloads(Path(folder)):
            for machine in MACHINES:
                title = f"{workload.title}, on {machine}"
                rows = measured(workload, machine, jobs)
                findings.append(finding(title, rows))
                tables += [f"### {title}\n", *table(rows, machine)]
            title = (
                f"{workload.title}, on p4de.24xlarge, with the article's 2.62 MB a token (wrong)"
            )
            rows = measured(workload, "p4de.24xlarge", jobs, wrong=True)
            findings.append(finding(title, rows))
            tables += [f"### {title}\n", *table(rows, "p4de.24xlarge")]
    engine = Engine.of(load(None, {**SHARED, "gpu": "a100-80gb", "tensor_parallel_size": 8}))
    label = engine.cost_model.label
    yield INTRODUCTION.format(objective="; ".join(OBJECTIVE.texts), label=label)
    yield "## Findings: instances needed\n"
    yield from findings
    yield ""
    yield from capacity()
    yield "## Tables\n"
    yield from tables
    yield "Written by `python reports/paging_70b.py`."


def main() -> None:
    """Print the report."""
    for line in report(os.cpu_count() or 1):
        print(line)


if __name__ == "__main__":
    main()
