"""How far a report can be trusted: where its times come from, and whether these were ever measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from kvsim.analysis.economics import HOURS_PER_MONTH
from kvsim.errors import ConfigError
from kvsim.runs import RunResult

FROM_PROFILE = re.compile(r"(measured|projected from)\s+\(?(?P<name>[^),]+)")
"""Labels of times that were composed from a profile."""
KINDS = {
    "analytic": "computed by a roofline from the GPU's data sheet and assumed efficiencies; nothing was "
    "measured for this deployment",
    "fixed": "a constant that the user has set",
    "fitted": "fitted to measured runs of that engine on one GPU",
    "measured": "composed of kernels that were timed on this GPU",
    "projected": "composed of kernels that were timed on another GPU, scaled by the bounds of both",
}

ADDED = {
    ", vllm": "what that engine adds was fitted to measured runs of it",
    ", host": "a constant that the user has set is added to each",
    "extrapolated": "no kernel of the type that is called extrapolated was timed: such times follow from "
    "those of the nearest type by bytes and FLOPs",
}
"""What parts of a label mean."""
HOSTS = (", vllm", ", host")


class Load(NamedTuple):
    """The largest shapes that a run computed."""

    context: int
    """Tokens of a prompt with its answer."""
    tokens: int
    """In an iteration."""


def calibration(label: str, load: Load | None) -> list[str]:
    """Where times come from, within what they were measured, and whether the run stays there."""
    known = KINDS.get(label.partition(" ")[0])
    said = f"iteration times are {label}" + (f": {known}" if known else "")
    found = FROM_PROFILE.match(label)
    if found is None:
        return [said]
    said += "".join(f"; {text}" for part, text in ADDED.items() if part in label)
    if not any(part in label for part in HOSTS):
        said += "; what an engine's host adds is not in them"
    return [said, *_domain(found["name"], load)]


def _domain(name: str, load: Load | None) -> list[str]:
    from kvsim.costs.accuracy import accuracies
    from kvsim.costs.operators import load_profile

    try:
        profile = load_profile(name)
        checked = accuracies(profile)[-1]
    except ConfigError as error:
        return [f"the profile {name} is not at hand to say within what it was measured ({error})"]
    most = Load(
        int(profile.table("decode_attention").xs[-1]),
        int(profile.table("gemm").xs[-1]),
    )
    said = [
        f"timed on {profile.gpu}; on {checked.shapes} shapes that were held out the median error is "
        f"{checked.median:.1%}, and one in twenty is off by more than {checked.p95:.1%}",
        f"measured up to {most.context:,} tokens of context and {most.tokens:,} tokens in an iteration",
    ]
    return said if load is None else [*said, _within(load, most)]


def _within(load: Load, most: Load) -> str:
    shape = f"{load.context:,} tokens of context and {load.tokens:,} tokens in an iteration"
    beyond = [name for name, a, b in zip(Load._fields, load, most, strict=True) if a > b]
    if not beyond:
        return f"this run stays within: at most {shape}"
    return f"this run goes beyond in {' and '.join(beyond)} (at most {shape}): there times are extrapolated"


def load_of(result: RunResult) -> Load | None:
    """The largest shapes of a run; None if it computed nothing."""
    served, samples = result.requests.served(), result.samples
    if not len(served) or not len(samples):
        return None
    context = int((served.prompt_tokens + served.output_tokens).max())
    return Load(context, int(samples.batch_tokens.max()))


def run_assumptions(scenario: Mapping[str, object], summary: Mapping[str, object]) -> list[str]:
    """What a reader accepts with a run."""
    replicas = scenario.get("replicas", 1)
    router = scenario.get("router")
    routed = router.get("name") if isinstance(router, Mapping) else router
    said = ["the traffic is the trace's and goes on like that, day and night"]
    if isinstance(replicas, int) and replicas > 1:
        said.append(
            f"{replicas} replicas behind a router of the kind {routed}; no network between them"
        )
    if summary.get("percentiles") == "histogram":
        said.append("percentiles are those of a histogram with buckets of 0.1 %")
    return [
        *said,
        f"a month has {HOURS_PER_MONTH:g} hours; instances are paid whole; no spare replicas for failures",
    ]
