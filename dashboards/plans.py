"""Plans made for a page: the question from its choices, the answer as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from os import cpu_count
from pathlib import Path
from typing import NamedTuple

from kvsim.errors import ConfigError
from kvsim.planning import Question, plan
from kvsim.planning.archive import Archive
from kvsim.planning.document import document
from kvsim.planning.objective import read_objective
from kvsim.planning.prices import Preference, read_amount
from kvsim.reporting.plan_data import PlanData, read_plan
from kvsim.scenario import Scenario

MOST_PROCESSES = 2
"""Of one plan, so that the pages stay quick beside it."""


class Wish(NamedTuple):
    """What is asked on the page."""

    trace: Path
    model: str
    gpus: tuple[str, ...]
    ttft: float
    """Seconds, of each request; 0 for none, as with TPOT."""
    tpot: float
    attainment: float
    headroom: float
    traffic: float
    """Arrivals, times faster."""
    limit: int
    """Requests of the trace; 0 for all."""
    sizes: tuple[int, ...]
    max_gpus: int
    commitment: str
    prices: str
    """Dollars per GPU-hour as ``2.10`` or ``h200=2.10, l40s=1``; empty for the catalog's."""


def question_of(wish: Wish, today: date) -> Question:
    """The question that a wish means."""
    limits = {"ttft": wish.ttft, "tpot": wish.tpot}
    texts = [f"{name}={limit:g}s" for name, limit in limits.items() if limit]
    workload: dict[str, object] = {"speedup": wish.traffic} if wish.traffic != 1 else {}
    if wish.limit:
        workload["limit"] = wish.limit
    said = [text for text in wish.prices.replace(";", ",").split(",") if text.strip()]
    amounts = tuple(read_amount("price", text.strip()) for text in said)
    if not wish.gpus:
        raise ConfigError("no GPU type is chosen")
    return Question(
        scenario=Scenario().changed(model=wish.model, workload=workload),
        trace=str(wish.trace),
        gpus=wish.gpus,
        objective=read_objective(texts, wish.attainment if texts else None),
        as_of=today,
        tensor_parallel_sizes=wish.sizes,
        max_gpus=wish.max_gpus,
        headroom=wish.headroom,
        preference=Preference(commitment=wish.commitment, gpu_prices=amounts),
    )


def planner(
    question: Question, archive: Path, *, explore: bool
) -> Callable[[Callable[[str, int], None]], PlanData]:
    """The work of answering; what replays have shown before is looked up in the archive's folder."""

    def work(told: Callable[[str, int], None]) -> PlanData:
        asked = replace(question, explore=explore)
        with Archive(archive) as known:
            jobs = min(MOST_PROCESSES, cpu_count() or 1)
            found = plan(asked, jobs=jobs, told=told, keep=False, archive=known)
        return read_plan(document(found, command_of(asked)), "plan")

    return work


def command_of(question: Question) -> str:
    """The command line that gives the same plan."""
    scenario, objective = question.scenario, question.objective
    parts = ["kvsim plan", Path(question.trace).name, f"--model {scenario.model}"]
    parts.append(f"--gpu {','.join(question.gpus)}")
    parts += [f"--slo {name}={limit:g}s" for name, limit in objective.limits.items()]
    if objective.attainment is not None:
        parts.append(f"--attainment {objective.attainment:g}")
    given = scenario.workload.model_dump(exclude_unset=True)
    parts += [f"--{name} {value:g}" for name, value in given.items()]
    parts += [f"--gpu-price {gpu}={usd:g}" if gpu else f"--gpu-price {usd:g}" for gpu, usd in question.preference.gpu_prices]  # fmt: skip
    parts.append(f"--tensor-parallel-size {','.join(map(str, question.tensor_parallel_sizes))}")
    parts.append(f"--max-gpus {question.max_gpus} --commitment {question.preference.commitment}")
    return " ".join([*parts, f"--headroom {question.headroom:g}"])
