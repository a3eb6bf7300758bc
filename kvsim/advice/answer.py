"""The advice, with everything that it rests on."""

from __future__ import annotations

from typing import NamedTuple

from kvsim.advice.comparison import Change, Comparison, Run, Verdict
from kvsim.advice.facts import Facts
from kvsim.advice.situation import Situation
from kvsim.advice.techniques import Technique, Trial
from kvsim.scenario import Scenario


class Start(NamedTuple):
    """A situation before its replays."""

    situation: Situation
    facts: Facts
    base: Scenario
    needed: str | None
    """What the model needs to fit at all."""


class Finding(NamedTuple):
    """What a technique does in a situation."""

    technique: Technique
    verdict: Verdict
    in_use: bool
    """Whether the deployment has it already."""
    trial: Trial | None
    comparison: Comparison | None
    """None where it means nothing to the deployment."""
    reason: str

    @property
    def decisive(self) -> Change | None:
        """The change of what decides."""
        changes = () if self.comparison is None else self.comparison.changes
        return changes[0] if changes else None


class Together(NamedTuple):
    """Several changes of the deployment at once."""

    names: tuple[str, ...]
    scenario: Scenario
    changes: tuple[Change, ...]
    """Against the deployment as it is."""
    times: str
    """Where the iteration times come from."""


class Row(NamedTuple):
    """The answer for one situation."""

    situation: Situation
    facts: Facts | None
    lack: str | None
    """Why there is no answer."""
    needed: str | None = None
    base: Run | None = None
    """The deployment as it is."""
    findings: tuple[Finding, ...] = ()
    together: Together | None = None
    """What helps at no price; None if nothing is to be changed."""
    at_a_price: Together | None = None
    """The same with what costs quality or GPUs, if that is more."""


class Advice(NamedTuple):
    """The table."""

    trace: str
    sha256: str
    scenario: Scenario
    rows: tuple[Row, ...]
    times: tuple[str, ...]
    """Where the iteration times come from."""
    replays: int
