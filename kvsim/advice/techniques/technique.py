"""The seam: what a technique changes, and how its effect, or the lack of it, is explained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from kvsim.advice.comparison import Comparison
from kvsim.scenario import Scenario

Settings = Mapping[str, object]


class Trial(NamedTuple):
    """Two deployments that differ in one technique only, as changes of the one asked about."""

    without: Settings
    with_it: Settings


class Reason(NamedTuple):
    """Why a technique does what it does."""

    text: str
    known: bool = True
    """False: the replays cannot tell."""


class Technique(Protocol):
    """Something that a deployment may do about its KV cache or its batches."""

    @property
    def name(self) -> str:
        """As engines call it."""
        ...

    @property
    def price(self) -> str | None:
        """What it is paid with besides work; None if with nothing."""
        ...

    def trial(self, scenario: Scenario) -> Trial | Reason:
        """What to replay; the reason where the technique means nothing to the deployment.

        Everything that an engine fills in by itself is filled in.
        """
        ...

    def reason(self, seen: Comparison) -> Reason:
        """Why the replays differ as they do, or do not."""
        ...


def share(part: float, whole: float) -> float:
    """A ratio; 0 of nothing."""
    return part / whole if whole else 0.0


def of_fewer_bits(seen: Comparison) -> str:
    """What replays of a narrower type leave open."""
    open_ = "what it does to the quality of answers is not simulated"
    times = str((seen.with_it.summary or {}).get("cost_model"))
    return f"{open_}; its times are {times}" if "extrapolated" in times else open_


def memory_pressure(seen: Comparison) -> str:
    """How full the memory was without the technique."""
    peak, stopped = seen.before("peak_kv_cache_usage"), seen.before("num_preemptions")
    text = f"running requests held {peak:.0%} of the KV memory at most"
    return f"{text} and lost their room {stopped:,.0f} times" if stopped else text
