"""What an engine does for a request that it serves alone: bounds no fleet can beat, and mean sizing.

Replicas only take load off one another. A request that misses its limit on an idle engine misses it
on any number of them, so these bounds tell which placements need no replay.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, inf
from typing import TYPE_CHECKING, NamedTuple

from kvsim import __version__
from kvsim.catalog import load_gpu
from kvsim.compose import layout_of, memory_plan, planned, resolved, shared_settings, trace_options
from kvsim.core import PICOSECONDS, BatchShape, Request
from kvsim.costs import COST_MODELS
from kvsim.errors import CapacityError, ConfigError
from kvsim.planning.objective import QUANTILES, Objective, duration
from kvsim.planning.trial import arriving
from kvsim.protocols import CostModel
from kvsim.scenario import Scenario
from kvsim.sizing import MemoryPlan
from kvsim.workload.prefixes import IdealCache

if TYPE_CHECKING:
    from kvsim.tables import Floats


class Traffic(NamedTuple):
    """A trace in the few numbers that a plan needs."""

    name: str
    sha256: str | None
    requests: int
    span: float
    """Seconds from the first to the last arrival."""
    prompt_tokens: int
    output_tokens: int
    absent: tuple[str, ...] = ()
    """Tenants with a quota of whom there is no request."""

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.span if self.span else float("inf")

    @property
    def mean_prompt(self) -> float:
        """Tokens."""
        return self.prompt_tokens / self.requests

    @property
    def mean_output(self) -> float:
        """Tokens."""
        return self.output_tokens / self.requests


class MeanSizing(NamedTuple):
    """What a calculator says that knows only means: no queue, no burst, no long prompt."""

    replicas: int
    batch: int
    """Sequences that decode together, on every replica, all the time."""
    prefill: float
    """Seconds for the mean prompt alone."""
    step: float
    """Seconds of an iteration of that batch."""


class Unloaded(NamedTuple):
    """One placement, before any replay."""

    refusal: str | None
    """Why it cannot meet the objective, with any number of replicas; None if it may."""
    attainment: float
    """Share of requests that meet every limit alone on an idle engine, with an ideal prefix cache."""
    sizing: MeanSizing | None
    """None where even means miss the objective."""
    fits: bool
    """Whether a replica of it can exist at all."""
    cost_label: str


@dataclass(frozen=True, slots=True)
class Glance:
    """Looks at one placement; work for another process."""

    scenario: Scenario
    trace: str
    traffic: Traffic
    objective: Objective

    def run(self) -> Unloaded:
        """Bounds and mean sizing; a refusal if the model does not fit."""
        try:
            engine = Engine.of(self.scenario)
        except (CapacityError, ConfigError) as error:
            return Unloaded(str(error), 0.0, None, fits=False, cost_label="")
        options = trace_options(self.scenario)
        requests = arriving(self.trace, options, self.traffic.requests)
        alone = engine.alone(requests)
        sizing = engine.mean_sizing(self.traffic, self.objective)
        attainment = share_within(alone, self.objective.limits)
        refusal = out_of_reach(alone, self.objective, attainment)
        label = engine.cost_model.label
        return Unloaded(refusal, attainment, sizing, fits=True, cost_label=label)

    @property
    def key(self) -> str:
        """Names everything that the result depends on, apart from the trace's content."""
        named = (__version__, "glance", self.scenario.hash, *self.objective)
        return hashlib.sha256(repr(named).encode()).hexdigest()

    def written(self, found: Unloaded) -> str:
        """The result as JSON."""
        return json.dumps(found, allow_nan=False)

    def read(self, text: str) -> Unloaded:
        """The result that was written."""
        refusal, attainment, sizing, *rest = json.loads(text)
        return Unloaded(refusal, attainment, MeanSizing(*sizing) if sizing else None, *rest)


class Engine(NamedTuple):
    """An engine's time and memory, without a scheduler."""

    scenario: Scenario
    cost_model: CostModel
    memory: MemoryPlan

    @classmethod
    def of(cls, scenario: Scenario) -> Engine:
        """As :func:`kvsim.compose.deploy` would make it."""
        gpu = load_gpu(scenario.gpu)
        layout = layout_of(scenario)
        scenario = resolved(scenario, layout, gpu)
        settings = shared_settings(scenario, layout, leaps=True)
        model = planned("cost_model", CostModel, COST_MODELS, scenario.cost_model, settings)
        memory = memory_plan(scenario, layout, gpu)
        return cls(scenario, model.build(layout=layout, gpu=gpu), memory)

    def alone(self, requests: Iterable[Request]) -> Mapping[str, Floats]:
        """Seconds of TTFT and TPOT of every request on an engine that does nothing else.

        As many prompt tokens are taken as cached as an unbounded cache could give.
        """
        import numpy as np

        cache, caching = IdealCache(), self.scenario.enable_prefix_caching
        first, gap, answers = [], [], []
        for request in requests:
            before = cache.token_hits
            if caching and request.hash_ids:
                cache.add(request)
            hit = min(cache.token_hits - before, request.prompt_tokens - 1)
            first.append(self.prompt_time(request.prompt_tokens - hit, hit))
            gap.append(self.gap_time(request))
            answers.append(request.output_tokens)
        ttft, tpot, count = np.array(first), np.array(gap), np.array(answers)
        e2el = ttft + np.where(count > 1, tpot * (count - 1), 0.0)
        return {"ttft": ttft, "tpot": tpot, "e2el": e2el, "normalized_latency": e2el / count}

    def prompt_time(self, new: int, cached: int) -> float:
        """Seconds to compute ``new`` prompt tokens after ``cached`` ones, chunk by chunk."""
        budget = self.scenario.max_num_batched_tokens or new
        whole, rest = divmod(new - 1, budget)
        time = 0
        if whole:
            time += self.cost_model.time(prompt_shape(budget, cached, sampled=0), whole)
        time += self.cost_model.time(prompt_shape(rest + 1, cached + whole * budget, sampled=1))
        return time / PICOSECONDS

    def gap_time(self, request: Request) -> float:
        """Mean seconds between tokens; NaN without a second token."""
        steps = request.output_tokens - 1
        if not steps:
            return float("nan")
        shape = BatchShape(1, request.prompt_tokens, sampled=1)
        return self.cost_model.time(shape, steps) / steps / PICOSECONDS

    def mean_sizing(self, traffic: Traffic, objective: Objective) -> MeanSizing | None:
        """Replicas by the mean prompt, the mean answer and the mean rate."""
        prompt, answer = round(traffic.mean_prompt) or 1, round(traffic.mean_output) or 1
        prefill = self.prompt_time(prompt, 0)
        fastest = objective.limits.get("tpot", float("inf"))
        if prefill > objective.limits.get("ttft", float("inf")):
            return None
        batch, step = self.largest_batch(prompt + answer // 2, prompt + answer, fastest)
        if not batch:
            return None
        seconds = prefill + answer * step / batch
        return MeanSizing(max(1, ceil(traffic.rate * seconds)), batch, prefill, step)

    def largest_batch(self, context: int, room: int, fastest: float) -> tuple[int, float]:
        """Most sequences of ``context`` tokens that fit, and decode within ``fastest`` seconds."""
        seats = self.scenario.max_num_seqs or 1
        low, high = 0, min(seats, int(self.memory.max_concurrency(room)))
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.step_time(middle, context) <= fastest
            low, high = (middle, high) if fits else (low, middle - 1)
        return low, self.step_time(low, context) if low else 0.0

    def step_time(self, batch: int, context: int) -> float:
        """Seconds of an iteration that decodes ``batch`` sequences."""
        return self.cost_model.time(BatchShape(batch, batch * context, sampled=batch)) / PICOSECONDS


def prompt_shape(new: int, cached: int, *, sampled: int) -> BatchShape:
    """An iteration with one chunk of a prompt and nothing else."""
    pairs = new * cached + new * (new + 1) // 2
    return BatchShape(0, 0, 1, new, cached, pairs, sampled)


def share_within(alone: Mapping[str, Floats], limits: Mapping[str, float]) -> float:
    """Share of requests within all limits; a latency that does not exist breaks none."""
    import numpy as np

    good = np.ones(len(alone["ttft"]), dtype=bool)
    for name in limits.keys() & alone.keys():
        good &= ~(alone[name] > limits[name])
    return float(good.mean())


def out_of_reach(
    alone: Mapping[str, Floats], objective: Objective, attainment: float
) -> str | None:
    """Which part of the objective even idle engines miss."""
    if objective.attainment is not None and attainment < objective.attainment:
        return f"only {attainment:.1%} of requests meet the limits even on an idle engine"
    for bound in objective.bounds:
        if bound.metric in alone and bound.statistic in QUANTILES:
            share = share_within(alone, {bound.metric: bound.limit})
            # One request of tolerance, for the interpolation of percentiles.
            if share + 1 / len(alone["ttft"]) < QUANTILES[bound.statistic]:
                name = bound.metric.upper()
                return (
                    f"{1 - share:.1%} of requests have a {name} above {duration(bound.limit)} even on an "
                    "idle engine"
                )
    return None


def survey(trace: str, requests: Iterable[Request], sha256: str | None) -> Traffic:
    """Read a trace once. Turns of a session count as if their answers took no time."""
    count = prompts = outputs = 0
    first, last = inf, 0.0
    sessions: dict[str | None, float] = {}
    for request in requests:
        count += 1
        prompts += request.prompt_tokens
        outputs += request.output_tokens
        at = request.arrival
        if at is None:
            at = sessions.get(request.session, 0.0) + (request.think_time or 0.0)
        if request.session is not None:
            sessions[request.session] = at
        first, last = min(first, at), max(last, at)
    return Traffic(trace, sha256, count, max(0.0, last - first), prompts, outputs)
