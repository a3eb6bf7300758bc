"""Does paging halve the instances? Llama-3-70B in FP16 on eight A100, contiguous against paged.

A widely copied article says so, for 8 x A100 80 GB at the price of AWS p4d, and reckons $12,000 saved a
month. Here it is replayed, with the article's figures put right: p4d has 40 GB cards, the 80 GB machine
is p4de; the model has 8 KV heads, not 64, so a token takes 0.328 MB and not 2.62 MB.

    python reports/paging_70b.py

writes ``paging_70b`` as page, text and paper beside this file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from kvsim import __version__
from kvsim.analysis.economics import HOURS_PER_MONTH
from kvsim.catalog import load_gpu, prices
from kvsim.planning import Question, plan
from kvsim.planning.objective import read_objective
from kvsim.planning.prices import day
from kvsim.planning.unloaded import Engine
from kvsim.reporting.charts import Axis, Bars, Part
from kvsim.reporting.document import (
    Bullets,
    Code,
    Column,
    Document,
    Figure,
    Paragraph,
    Point,
    Section,
    Summary,
    Table,
    Tile,
    sentences,
)
from kvsim.reporting.forms import dollars, plain
from kvsim.reporting.render import write_report
from kvsim.reporting.trust import calibration
from kvsim.scenario import Scenario
from kvsim.scenario_file import load
from kvsim.workload.generate import generate
from kvsim.workload.spec import WorkloadSpec
from kvsim.workload.writers import write_trace

HERE = Path(__file__).resolve().parent
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
ARTICLE_SAVES = 12_000.0
"""Dollars a month."""


class Workload(NamedTuple):
    """A trace and how it is read."""

    title: str
    trace: str
    speedup: float


class Setting(NamedTuple):
    """A workload on a machine."""

    workload: Workload
    machine: str
    overstated: bool = False
    """With the article's bytes per token."""

    @property
    def title(self) -> str:
        """In words."""
        wrong = ", the article's 2.62 MB a token (wrong)" if self.overstated else ""
        return f"{self.workload.title} on {self.machine}{wrong}"


class Need(NamedTuple):
    """What one memory needs; None where nothing is enough."""

    memory: str
    instances: int | None
    within: float | None
    """Share of requests within all limits."""
    usage: float | None
    """Highest share of the KV memory that was in use."""
    remark: str


class Result(NamedTuple):
    """What every memory needs in a setting."""

    setting: Setting
    needs: list[Need]

    @property
    def counts(self) -> list[int | None]:
        """Instances, in the order of the memories."""
        return [need.instances for need in self.needs]

    @property
    def saved(self) -> int:
        """Instances that paging alone saves; contiguous memory that never is enough saves none."""
        reserved, _, paged, _ = self.counts
        return 0 if reserved is None or paged is None else reserved - paged

    @property
    def finding(self) -> str:
        """What paging alone does."""
        reserved, _, paged, _ = self.counts
        if reserved is None or paged is None:
            return "nothing is enough" if paged is None else "only paging is enough"
        if 2 * paged <= reserved:
            return "halves them"
        return "saves some" if self.saved else "saves nothing"


def long_answers() -> WorkloadSpec:
    """Short prompts and long answers, nothing shared: what fills memory most for its work."""
    return WorkloadSpec(
        requests=6000,
        rate=40.0,
        prompt="lognormal:150:0.8",
        output="lognormal:600:0.6",
        max_tokens=8192,
    )


WORKLOADS = (
    "conversations: traces/chat.jsonl.gz, whose turns share prefixes, ten times as fast",
    "long answers: 6,000 generated requests, 40 a second, prompts of 150 and answers of 600 tokens in the "
    "median, nothing shared",
)


def workloads(folder: Path) -> Iterator[Workload]:
    """The two of :data:`WORKLOADS`."""
    yield Workload("conversations", str(HERE.parent / "traces" / "chat.jsonl.gz"), 10.0)
    path = folder / "long_answers.jsonl.gz"
    write_trace(generate(long_answers(), 1), str(path))
    yield Workload("long answers", str(path), 1.0)


def results(jobs: int) -> list[Result]:
    """Every setting with every memory; those with the wrong bytes per token last."""
    with TemporaryDirectory(prefix="kvsim-") as folder:
        found = list(workloads(Path(folder)))
        settings = [Setting(workload, machine) for workload in found for machine in MACHINES]
        settings += [Setting(workload, "p4de.24xlarge", overstated=True) for workload in found]
        return [Result(one, [needed(one, memory, jobs) for memory in MEMORIES]) for one in settings]


def needed(setting: Setting, memory: str, jobs: int) -> Need:
    """The smallest number of instances that meets the objective."""
    question = Question(
        scenario_of(setting, memory),
        setting.workload.trace,
        (MACHINES[setting.machine],),
        OBJECTIVE,
        AS_OF,
        tensor_parallel_sizes=(8,),
        token_budgets=(None,),
        max_gpus=800,
        explore=False,
    )
    found = plan(question, jobs=jobs, keep=False)
    if not found.candidates:
        return Need(memory, None, None, None, found.refused[0].reason)
    best = found.candidates[0]
    assert best.outcome.summary is not None
    usage, verdict = (best.outcome.summary[key] for key in ("peak_kv_cache_usage", "verdict"))
    assert isinstance(usage, float)
    return Need(memory, best.fleet.replicas, best.outcome.attainment, usage, str(verdict))


def scenario_of(setting: Setting, memory: str) -> Scenario:
    """One engine of a setting, on whichever GPU is asked."""
    settings = {**SHARED, **MEMORIES[memory], "workload": {"speedup": setting.workload.speedup}}
    scenario = load(None, settings)
    if not setting.overstated:
        return scenario
    engine = Engine.of(scenario.changed(gpu=MACHINES[setting.machine], tensor_parallel_size=8))
    blocks = engine.memory.num_gpu_blocks // ARTICLE_HEADS
    return load(None, {**settings, "num_gpu_blocks_override": blocks})


def hourly(machine: str) -> list[tuple[str, float]]:
    """List prices of a machine by their day, oldest first, where they changed."""
    listed = [
        p for p in prices(MACHINES[machine], provider="aws", kind="on-demand") if p.sku == machine
    ]
    listed.sort(key=lambda price: (day(price) or date.min, price.date))
    seen: dict[float, str] = {}
    for price in listed:
        assert price.usd_per_hour is not None
        seen.setdefault(price.usd_per_hour, price.date.partition(" (")[0])
    return [(when, usd) for usd, when in seen.items()]


def monthly(machine: str, instances: int | None, which: int = -1) -> float | None:
    """Dollars a month at the newest list price, or at another one."""
    return None if instances is None else instances * hourly(machine)[which][1] * HOURS_PER_MONTH


# The document.


def document(jobs: int) -> Document:
    """All of it, the findings first."""
    found = results(jobs)
    right = [one for one in found if not one.setting.overstated]
    return Document(
        title="Does paging halve the instances? Llama-3-70B in 16 bits on eight A100",
        facts=(f"kvsim {__version__}", f"prices as of {AS_OF}"),
        summary=summary(right),
        sections=(
            findings(found, right),
            Section("Put right", (Paragraph(CLAIM), Bullets(CORRECTIONS), capacity())),
            *(details(one) for one in found),
            assumptions(),
            Section("Reproduce", (Code("python reports/paging_70b.py"),)),
        ),
    )


CLAIM = (
    "The claim, from an article on KV caches: paged in place of contiguous KV memory doubles the "
    "throughput of Llama-3-70B (FP16, 8 × A100 80 GB), so half the p4d.24xlarge at $32.77 an hour do, and "
    "$12,000 a month are saved."
)
CORRECTIONS = (
    "p4d.24xlarge has eight A100 of 40 GB; the 80 GB machine is p4de.24xlarge.",
    "$32.77 was p4d's list price until May 2025; it is $21.96 since.",
    "A token takes 2 × 80 layers × 8 KV heads × 128 × 2 bytes = 0.328 MB, not the 2.62 MB of 64 query heads.",
    "That throughput doubles is the article's assumption, not a measurement.",
)


def summary(right: list[Result]) -> Summary:
    """Answer, cost and risk, of the settings that are put right."""
    halved = sum(one.finding == "halves them" for one in right)
    saved = [monthly(one.setting.machine, one.saved) or 0.0 for one in right]
    where = ", ".join(f"{one.finding} for {one.setting.title}" for one in right)
    cached = ", ".join(str(one.counts[3]) for one in right)
    return Summary(
        headline=f"Paging alone halves the instances in {halved} of {len(right)} cases",
        tone="open",
        points=(
            Point(
                "Answer",
                f"It depends on whether memory is what runs out. Paging alone {where}. With the prefix cache "
                f"that paging makes possible, the instances are {cached}.",
            ),
            Point(
                "Cost",
                f"Paging alone saves from {dollars(min(saved))} to {dollars(max(saved))} a month at the "
                f"newest list prices; the article reckons {dollars(ARTICLE_SAVES)}.",
            ),
            Point(
                "Risk",
                f"Iteration times are {times()}: nothing was measured on an A100. Other traffic has another "
                "answer: replay yours.",
            ),
        ),
        tiles=tuple(
            Tile(f"{one.counts[0]} → {one.counts[2]}", f"instances, {one.setting.title}")
            for one in right
        ),
    )


def findings(found: list[Result], right: list[Result]) -> Section:
    """Instances by setting and memory."""
    columns = (
        Column("workload and machine"),
        *(Column(memory, "count") for memory in MEMORIES),
        Column("paging alone"),
    )
    rows = tuple((one.setting.title, *one.counts, one.finding) for one in found)
    parts = (
        Part("paged", [float(one.counts[2] or 0) for one in right], "blue"),
        Part("more when contiguous", [float(one.saved) for one in right], "orange"),
    )
    chart = Bars(
        Axis("instances of eight GPUs", "count"),
        tuple(one.setting.title for one in right),
        parts,
        tuple(f"{one.counts[0]} contiguous, {one.counts[2]} paged" for one in right),
    )
    caption = (
        "Instances that meet the objective: with paged memory, and how many more with contiguous."
    )
    return Section("Instances needed", (Table(columns, rows), Figure("instances", caption, chart)))


def capacity() -> Table:
    """How many KV tokens each machine holds."""
    rows = []
    for machine, gpu in MACHINES.items():
        engine = Engine.of(load(None, {**SHARED, "gpu": gpu, "tensor_parallel_size": 8}))
        tokens = engine.memory.kv_tokens_capacity
        listed = "; ".join(f"${usd:,.2f} ({when})" for when, usd in hourly(machine))
        rows.append((machine, f"8 × {load_gpu(gpu).name}", tokens, tokens // 8192, listed))
    columns = (
        Column("machine"),
        Column("GPUs"),
        Column("KV tokens", "count"),
        Column("sequences of 8,192 reserved", "count"),
        Column("list price an hour, by date"),
    )
    return Table(columns, tuple(rows))


def details(one: Result) -> Section:
    """Every memory in a setting: service, memory and money."""
    machine = one.setting.machine
    (then, _), *_, (now, _) = hourly(machine)
    columns = (
        Column("KV memory"),
        Column("instances", "count"),
        Column("within limits", "share"),
        Column("memory in use, at most", "share"),
        Column("bottleneck"),
        Column(f"$/month (price of {now})", "dollars"),
        Column(f"saved a month (price: {now})", "dollars"),
        Column(f"saved a month (price: {then})", "dollars"),
    )
    before = one.counts[0]
    rows = []
    for need in one.needs:
        spared = None if before is None or need.instances is None else before - need.instances
        money = (monthly(machine, need.instances), monthly(machine, spared))
        rows.append((*need[:4], need.remark, *money, monthly(machine, spared, 0)))
    return Section(f"In detail: {one.setting.title}", (Table(columns, tuple(rows)),))


def assumptions() -> Section:
    """What a reader must accept."""
    said = [
        *WORKLOADS,
        f"objective: {plain('; '.join(OBJECTIVE.texts))}",
        "one replica on the eight GPUs of an instance, at most 8,192 tokens a sequence; the scheduler is the "
        "same for all, with the seats and the tokens an iteration that vLLM takes on an A100, so only "
        "the memory differs",
        *calibration(times(), None),
        "a month has 730 hours; instances are paid whole; no spare replicas for failures",
    ]
    listed = sentences(said)
    assert listed is not None
    return Section("Assumptions and calibration", (listed,))


def times() -> str:
    """Where iteration times come from."""
    engine = Engine.of(load(None, {**SHARED, "gpu": "a100-80gb", "tensor_parallel_size": 8}))
    return engine.cost_model.label


def main() -> None:
    """Write the report."""
    made = document(os.cpu_count() or 1)
    for kind in ("html", "md", "pdf"):
        write_report([made], HERE / f"paging_70b.{kind}")


if __name__ == "__main__":
    main()
