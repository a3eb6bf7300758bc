"""What helped, put together and replayed once more: effects of techniques do not simply add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvsim.advice.answer import Finding, Row, Together
from kvsim.advice.comparison import compared, measures
from kvsim.advice.replay import Study
from kvsim.scenario import Scenario


def chosen(row: Row, *, at_a_price: bool = False) -> list[Finding]:
    """What to change: additions that help and parts in use that hurt, the best first.

    Of several that change the same setting the best is taken.
    """
    picked: list[Finding] = []
    for one in sorted(filter(worthwhile, row.findings), key=improvement, reverse=True):
        taken = {name for other in picked for name in changes_of(other)}
        affordable = at_a_price or one.technique.price is None
        if affordable and possible(row, one) and not taken & changes_of(one).keys():
            picked.append(one)
    return picked


def worthwhile(one: Finding) -> bool:
    """Whether to add a technique, or to give it up if it is in use.

    Added is what makes something better and nothing worse, or what makes better what decides.
    """
    gain = 0 if one.decisive is None else one.decisive.gain
    if one.in_use:
        return one.verdict in ("hurts", "trade-off") and gain < 0
    useful = one.verdict in ("helps", "makes it fit")
    return useful or (one.verdict == "trade-off" and gain > 0)


def improvement(one: Finding) -> float:
    """How many times better what decides becomes by the change."""
    change = one.decisive
    if change is None or not change.before or not change.after:
        return 1.0
    ratio = change.after / change.before
    return ratio if (change.measure.better == "higher") != one.in_use else 1 / ratio


def possible(row: Row, one: Finding) -> bool:
    """Whether what was compared is a change of this deployment, and not of another one."""
    assert one.comparison is not None
    assert row.base is not None
    here = one.comparison.with_it if one.in_use else one.comparison.without
    return here.scenario.hash == row.base.scenario.hash


def changes_of(one: Finding) -> Mapping[str, object]:
    """The settings that change when a technique is added, or given up."""
    assert one.trial is not None
    return one.trial.without if one.in_use else one.trial.with_it


def with_changes(row: Row, picked: Sequence[Finding]) -> Scenario:
    """The deployment with several changes."""
    assert row.base is not None
    settings = {name: value for one in picked for name, value in changes_of(one).items()}
    return row.base.scenario.changed(**settings)


def put_together(study: Study, row: Row) -> Row:
    """The row with what helps together, first at no price, then at any."""
    free, paid = chosen(row), chosen(row, at_a_price=True)
    return row._replace(
        together=together(study, row, free) if free else None,
        at_a_price=together(study, row, paid) if paid and paid != free else None,
    )


def together(study: Study, row: Row, picked: Sequence[Finding]) -> Together:
    """Several changes at once against the deployment as it is."""
    assert row.facts is not None
    assert row.base is not None
    scenario = with_changes(row, picked)
    judged_by = measures(row.facts.clients, limited=bool(scenario.slo))
    run = study.run(scenario, row.situation)
    names = tuple(f"{'no ' if one.in_use else ''}{one.technique.name}" for one in picked)
    changes = compared(row.base, run, row.facts, judged_by).changes
    return Together(names, scenario, changes, str((run.summary or {}).get("cost_model")))
