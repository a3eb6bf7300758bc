"""One replay of a situation, as a value that another process can run and an archive can name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from kvsim import __version__
from kvsim.advice.comparison import Run
from kvsim.advice.situation import Cut, Situation, cut
from kvsim.compose import deploy, described, trace_options
from kvsim.errors import CapacityError, ConfigError
from kvsim.planning.pool import Lab
from kvsim.runs import Recording, new_manifest
from kvsim.scenario import Scenario
from kvsim.simulation.cluster import simulate
from kvsim.simulation.recorder import Recorder
from kvsim.workload import TraceOptions, open_trace

REFUSED = 0.01
"""Share of requests that may be refused before the deployment counts as unable."""


class Shown(NamedTuple):
    """What a replay has shown: its summary, or why there is none."""

    summary: Mapping[str, object] | None
    failure: str | None


@dataclass(frozen=True, slots=True)
class Replay:
    """A deployment under the requests of a situation."""

    scenario: Scenario
    trace: str
    situation: Situation
    most: int

    @property
    def key(self) -> str:
        """Names everything that the result depends on, apart from the trace's content."""
        named = (__version__, "advice", self.scenario.hash, *self.situation, self.most)
        return hashlib.sha256(repr(named).encode()).hexdigest()

    def run(self) -> Shown:
        """Replay; a deployment that cannot be is a result like others."""
        try:
            summary = replayed(self)
        except (CapacityError, ConfigError) as error:
            return Shown(None, str(error))
        refused, served = summary["num_rejected"], summary["completed"]
        assert isinstance(refused, int)
        assert isinstance(served, int)
        if refused > REFUSED * (refused + served):
            total = refused + served
            return Shown(None, f"{refused} of {total} requests are too long for it and are refused")
        return Shown(summary, None)

    def written(self, found: Shown) -> str:
        """The result as JSON."""
        return json.dumps(found, allow_nan=False)

    def read(self, text: str) -> Shown:
        """The result that was written."""
        return Shown(*json.loads(text))


def replayed(asked: Replay) -> dict[str, object]:
    """The summary of a replay, with throughput per GPU."""
    deployed = deploy(asked.scenario)
    replicas, slots = deployed.replicas, deployed.replicas[0].allocator.total_slots
    chosen = requests_of(asked.trace, trace_options(asked.scenario), asked.situation, asked.most)
    with Recording(None, slos=asked.scenario.slo) as recording:
        recorder = Recorder(len(replicas), slots, recording, limits=deployed.limits)
        simulate(chosen.requests, replicas, deployed.router, recorder)
        manifest = new_manifest(scenario={}, scenario_hash="", trace={}, seed=asked.scenario.seed)
        result = recording.complete(manifest, recorder.close(), described(deployed))
    per_gpu = result.summary["output_throughput"]
    assert per_gpu is None or isinstance(per_gpu, float)
    if per_gpu is not None:
        per_gpu /= gpus(asked.scenario)
    return {**result.summary, "output_throughput_per_gpu": per_gpu}


def gpus(scenario: Scenario) -> int:
    """GPUs of a deployment."""
    size = scenario.tensor_parallel_size * scenario.pipeline_parallel_size
    return size * scenario.replicas


@cache
def requests_of(path: str, options: TraceOptions, situation: Situation, most: int) -> Cut:
    """The requests of a situation, cut once by each process."""
    return cut(open_trace(path, options), situation, most)


@dataclass(frozen=True, slots=True)
class Study:
    """The replays of one advice: each deployment under each situation once."""

    lab: Lab
    trace: str
    most: int
    _known: dict[str, Shown] = field(default_factory=dict)

    @property
    def replays(self) -> int:
        """How many there were."""
        return len(self._known)

    def prepare(self, wanted: Iterable[tuple[Scenario, Situation]]) -> None:
        """Replay side by side what will be asked for."""
        works = {work.key: work for work in map(self._work, wanted)}
        new = {key: work for key, work in works.items() if key not in self._known}
        self._known.update(zip(new, self.lab.each(list(new.values())), strict=True))

    def run(self, scenario: Scenario, situation: Situation) -> Run:
        """What a deployment does in a situation."""
        shown = self._known[self._work((scenario, situation)).key]
        return Run(scenario, shown.summary, shown.failure)

    def _work(self, wanted: tuple[Scenario, Situation]) -> Replay:
        scenario, situation = wanted
        return Replay(scenario, self.trace, situation, self.most)
