"""What each technique does in a situation, and why."""

from __future__ import annotations

from kvsim.advice.answer import Finding, Row, Start
from kvsim.advice.comparison import Comparison, Verdict, compared, measures
from kvsim.advice.replay import Study
from kvsim.advice.techniques import TECHNIQUES, Reason, Technique, Trial
from kvsim.errors import ConfigError
from kvsim.scenario import Scenario


def judged(study: Study, start: Start) -> Row:
    """The row of a situation whose replays have run."""
    base = study.run(start.base, start.situation)
    findings = [
        finding(study, start, TECHNIQUES[name], trial) for name, trial in trials(start).items()
    ]
    return Row(start.situation, start.facts, None, start.needed, base, tuple(findings))


def trials(start: Start) -> dict[str, Trial | Reason]:
    """What each technique wants to see."""
    return {name: trial_of(start, technique) for name, technique in TECHNIQUES.items()}


def trial_of(start: Start, technique: Technique) -> Trial | Reason:
    """What a technique wants to see; a mistake in it is a reason like others."""
    try:
        return technique.trial(start.base)
    except ConfigError as error:
        return Reason(str(error), known=False)


def finding(study: Study, start: Start, technique: Technique, trial: Trial | Reason) -> Finding:
    """Judge a technique in a situation."""
    if isinstance(trial, Reason):
        verdict: Verdict = "inert" if trial.known else "not enough evidence"
        return Finding(technique, verdict, False, None, None, trial.text)
    without = study.run(start.base.changed(**trial.without), start.situation)
    with_it = study.run(start.base.changed(**trial.with_it), start.situation)
    limited = bool(start.base.slo)
    seen = compared(without, with_it, start.facts, measures(start.facts.clients, limited=limited))
    reason = reason_of(technique, seen)
    return Finding(
        technique,
        seen.verdict if reason.known else "not enough evidence",
        in_use(start.base, trial),
        trial,
        seen,
        reason.text,
    )


def in_use(base: Scenario, trial: Trial) -> bool:
    """Whether the deployment has what a technique is about: the first of its settings."""
    name = next(iter(trial.with_it), None)
    return name is not None and getattr(base, name) == getattr(base.changed(**trial.with_it), name)


def reason_of(technique: Technique, seen: Comparison) -> Reason:
    """Why a technique does what it does; the failure where one of the two could not be replayed."""
    if seen.with_it.failure is not None:
        return Reason(seen.with_it.failure, known=False)
    if seen.without.failure is not None:
        return Reason(f"without it: {seen.without.failure}")
    return technique.reason(seen)
