"""One replay for each isolation, with an observer in it; every defence judged by what it saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvsim.compose import simulate, trace_options
from kvsim.errors import ConfigError
from kvsim.leakage.defences import Defence
from kvsim.leakage.observer import advantage, auc, observations_needed
from kvsim.leakage.probes import FEWEST, Probing, Watched, watched
from kvsim.scenario import Scenario
from kvsim.workload import Trace, open_trace
from kvsim.workload.isolation import Isolation, isolated

if TYPE_CHECKING:
    from kvsim.tables import Flags, Floats, RequestTable

QUANTILES = (5, 25, 50, 75, 95)
CLOCK = 6
"""Decimals of a second that an observer's clock has: equal times that were computed differently tie."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a trace."""

    scenario: Scenario
    trace: str
    defences: Mapping[str, Defence]
    probing: Probing = field(default_factory=Probing)


class Sample(NamedTuple):
    """What one kind of probe met."""

    probes: int
    hit_share: float
    """Of the probes: those that found more than all targets share cached."""
    ttft_ms: dict[str, float]
    """Quantiles of what the observer sees."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What an observer learns under a defence, and what the defence costs everybody else."""

    defence: str
    isolation: Isolation
    repeats: Sample
    controls: Sample
    auc: float
    """Chance that a probe that repeats a prompt is answered faster than one that does not."""
    hit_auc: float | None
    """The same for probes that hit and that missed; None if there are too few of either."""
    advantage: float
    """TPR - FPR of the best threshold, on probes that it was not chosen by."""
    advantage_error: float
    threshold_ms: float
    requests_needed: int | None
    """Independent observations until both mistakes are at most 5 % likely; None: it cannot tell."""
    hit_rate: float
    """Of the prompt tokens of all others."""
    mean_ttft_ms: float
    """As all others see it."""

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        samples = {"repeats": self.repeats._asdict(), "controls": self.controls._asdict()}
        return {**asdict(self), **samples}


class Seen(NamedTuple):
    """Times to first token that the observer sees, seconds."""

    repeats: Floats
    controls: Floats


class Leakage(NamedTuple):
    """What is found for each defence, in the order in which they were named."""

    tokens: int
    """Of a prompt, that a probe repeats."""
    findings: list[Finding]
    seen: list[Seen]
    """What each finding was made of."""


def study(question: Question) -> Leakage:
    """What each defence leaves to be seen."""
    scenario = question.scenario.changed(isolation="global")
    opened = open_trace(question.trace, trace_options(scenario))
    stream = np.random.default_rng([scenario.seed, 1])
    seen = watched(opened, question.probing, opened.name, stream)
    replays: dict[Isolation, RequestTable] = {}
    findings, times = [], []
    for name, defence in question.defences.items():
        if defence.isolation not in replays:
            replays[defence.isolation] = _replayed(opened, scenario, seen, defence.isolation)
        served = replays[defence.isolation]
        finding, sample = _finding(name, defence, served, seen, scenario.seed)
        findings.append(finding)
        times.append(sample)
    return Leakage(seen.tokens, findings, times)


def _replayed(
    opened: Trace, scenario: Scenario, seen: Watched, isolation: Isolation
) -> RequestTable:
    """What everybody met who was served. ConfigError if too few probes were."""
    requests = isolated(seen.requests, isolation, opened.name)
    served = simulate(scenario, opened, watch=lambda _: requests).requests.served()
    probes = len(served.where(np.isin(served.row, [*seen.repeats, *seen.controls])))
    if probes < len(seen.repeats) + len(seen.controls):
        raise ConfigError(
            f"{opened.name}: only {probes} probes of {seen.tokens} tokens could be served; accepted: a "
            "deployment that serves them all, or a shorter --probe-tokens"
        )
    return served


def _finding(
    name: str, defence: Defence, served: RequestTable, seen: Watched, seed: int
) -> tuple[Finding, Seen]:
    rng = np.random.default_rng([seed, 2])
    by_row = served.take(np.argsort(served.row))
    times = defence.seen(by_row.first_token - by_row.arrival, rng).round(CLOCK)
    kind = [np.isin(by_row.row, list(rows)) for rows in (seen.repeats, seen.controls)]
    repeats, controls = (times[flags] for flags in kind)
    shared = {**seen.repeats, **seen.controls}
    hit = by_row.cached_tokens > [shared.get(row, 0) for row in by_row.row.tolist()]
    probes, others = kind[0] | kind[1], ~(kind[0] | kind[1])
    found = advantage(repeats, controls)
    finding = Finding(
        name,
        defence.isolation,
        _sample(times, hit, kind[0]),
        _sample(times, hit, kind[1]),
        auc(repeats, controls),
        _hit_auc(times[probes], hit[probes]),
        found.value,
        found.error,
        1e3 * found.threshold,
        observations_needed(found, min(len(repeats), len(controls)) // 2),
        float(by_row.cached_tokens[others].sum() / by_row.prompt_tokens[others].sum()),
        float(1e3 * times[others].mean()),
    )
    return finding, Seen(repeats, controls)


def _sample(times: Floats, hit: Flags, kind: Flags) -> Sample:
    points = 1e3 * np.percentile(times[kind], QUANTILES)
    quantiles = {f"p{q}": float(p) for q, p in zip(QUANTILES, points, strict=True)}
    return Sample(int(kind.sum()), float(hit[kind].mean()), quantiles)


def _hit_auc(times: Floats, hit: Flags) -> float | None:
    if min(hit.sum(), (~hit).sum()) < FEWEST:
        return None
    return auc(times[hit], times[~hit])
