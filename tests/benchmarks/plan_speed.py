"""How long a plan takes: four GPU types on Mooncake's conversation trace, anew and remembered.

    python tests/benchmarks/plan_speed.py TRACE > reports/plan_speed.md

TRACE is its ``conversation_trace.jsonl.gz``.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import kvsim
from kvsim.planning.archive import FILE
from kvsim.planning.prices import Preference

JOBS = 2
GPUS = ("h200", "h100-sxm", "a100-80gb", "l40s")


class Timing(NamedTuple):
    """One plan."""

    seconds: float
    cpu: float
    steps: Counter[str]
    """Replays by what they were for."""
    answer: str


def cpu() -> float:
    """CPU seconds of this process and of those that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def timed(question: kvsim.Question, archive: kvsim.Archive) -> Timing:
    """Plan, and count replays by the step that asked for them."""
    steps: Counter[str] = Counter()
    began, used = time.perf_counter(), cpu()
    found = kvsim.plan(
        question,
        jobs=JOBS,
        keep=False,
        archive=archive,
        told=lambda what, count: steps.update([what]),
    )
    best = found.candidates[0]
    answer = f"{best.fleet.bill.gpus_needed} x {best.market.gpu.name}"
    return Timing(time.perf_counter() - began, cpu() - used, steps, answer)


def stopped(folder: Path) -> tuple[int, int]:
    """Replays that missed the objective, and those among them that were stopped before their end."""
    import json
    import sqlite3

    rows = sqlite3.connect(folder / FILE).execute("SELECT found FROM replays").fetchall()
    outcomes = [found for (text,) in rows if isinstance((found := json.loads(text))[0], bool)]
    missed = [summary for met, _, summary in outcomes if not met]
    return len(missed), sum(summary is None for summary in missed)


def line(name: str, seen: Timing) -> str:
    """A row of the table."""
    steps = [seen.steps[step] for step in ("searching fleets", "checking", "exploring")]
    counts = " | ".join(map(str, steps))
    return f"| {name} | {seen.seconds:.1f} | {seen.cpu:.1f} | {counts} | {seen.answer} |"


def report(trace: str) -> None:
    """Print the page."""
    question = kvsim.Question(
        kvsim.Scenario(model="llama-3.1-8b"),
        trace,
        GPUS,
        kvsim.read_objective(["ttft_p99=2s", "tpot_p99=50ms"]),
    )
    dear = replace(question, preference=Preference(gpu_prices=(("H100-SXM5-80GB", 99.0),)))
    with TemporaryDirectory() as folder, kvsim.Archive(Path(folder)) as archive:
        rows = [
            line("anew", timed(question, archive)),
            line("asked again", timed(question, archive)),
            line("with another price, and so another answer", timed(dear, archive)),
        ]
        missed, early = stopped(Path(folder))
    load = os.getloadavg()[0]
    print("# How long a plan takes\n")
    print(
        f"`{Path(trace).name}` over {', '.join(GPUS)}, {JOBS} processes on {os.cpu_count()} CPUs ",
        end="",
    )
    print(f"(load {load:.1f} at the end), made by `python tests/benchmarks/plan_speed.py TRACE`.\n")
    print("| plan | seconds | CPU seconds | replays to search | to check | to explore | answer |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | --- |")
    print("\n".join(rows))
    print(
        f"\nOf the replays {missed} missed the objective, and {early} of them were stopped before their"
    )
    print("end, when it was certain.")


if __name__ == "__main__":
    report(sys.argv[1])
