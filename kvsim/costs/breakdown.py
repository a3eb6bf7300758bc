"""An iteration taken apart: what each operator takes, the least it could, and how sure that is."""

from __future__ import annotations

from math import hypot
from typing import NamedTuple

from kvsim.core import BatchShape
from kvsim.costs.accuracy import error
from kvsim.costs.attending import whole
from kvsim.costs.demand import Demand, Operator
from kvsim.costs.operators import Estimate, Provenance, worse
from kvsim.costs.profile import PER_MICROSECOND, Measured

DOUBTS: dict[Provenance, float] = {
    "measured": 0.0,
    "interpolated": 1.0,
    "extrapolated": 2.0,
    "projected": 3.0,
}
"""How many times the error of held-out shapes is added to the spread of the measurements. That of
times beyond the grid and of other GPUs is an assumption: nothing was held out there."""
AS_TIMED = 0.01
"""Largest part by which a time may differ from a measured one and still be called measured: between
the batches that a step is composed of times are linear, and those that fall with size are levelled."""
MILLI = 1e-3


class Part(NamedTuple):
    """One operator's part of an iteration, milliseconds."""

    name: str
    time: float
    low: float
    high: float
    bound: float
    provenance: Provenance

    def then(self, other: Part) -> Part:
        """Two operators of one name together."""
        return Part(
            self.name,
            self.time + other.time,
            self.low + other.low,
            self.high + other.high,
            self.bound + other.bound,
            worse(self.provenance, other.provenance),
        )


class StepTime(NamedTuple):
    """An iteration and its parts, milliseconds."""

    total: float
    low: float
    high: float
    parts: list[Part]


def breakdown(model: Measured, shape: BatchShape) -> StepTime:
    """The parts of an iteration in the order in which it runs them; their sum is its time."""
    parts: dict[str, Part] = {}
    for operator in model.operators:
        part = part_of(model, operator, shape)
        if part is not None:
            known = parts.get(part.name)
            parts[part.name] = part if known is None else known.then(part)
    total = sum(part.time for part in parts.values())
    low = hypot(*(part.time - part.low for part in parts.values()))
    high = hypot(*(part.high - part.time for part in parts.values()))
    return StepTime(total, max(total - low, 0.0), total + high, list(parts.values()))


def part_of(model: Measured, operator: Operator, shape: BatchShape) -> Part | None:
    """What one operator does in an iteration; None if it does nothing."""
    decodes, context, prefills, new, _, _, sampled, *_ = shape
    counts = {"token": decodes + new, "row": sampled, "sequence": decodes + prefills}
    if operator.per in counts:
        count = counts[operator.per]
        if not count:
            return None
        time = model.surface([operator]).by_row()(count)
        return with_doubt(
            model, operator, time, model.settled(operator, count), model.bound(operator, count)
        )
    if operator.per == "decode":
        if not decodes:
            return None
        mean = context / decodes
        time = model.surface([operator]).curve(decodes, decodes)(context)
        found = model.settled(operator, decodes, mean)
        longer = model.longer(shape)
        if longer:
            skewed = {one: model.skewed(one, decodes) for one in model.some("decode")}
            time += round(longer * skewed[operator] / sum(skewed.values()))
            found = found._replace(provenance=worse(found.provenance, "interpolated"))
        return with_doubt(model, operator, time, found, model.bound(operator, decodes, mean))
    return prompt_part(model, operator, shape) if new else None


def prompt_part(model: Measured, operator: Operator, shape: BatchShape) -> Part | None:
    """Attention of prompts by one operator."""
    _, _, prefills, new, cached, *_ = shape
    surface = model.surface([operator])
    if prefills == 1:
        time, bound = surface.curve(whole(new))(cached), model.bound(operator, new, cached)
        return with_doubt(model, operator, time, model.settled(operator, new, cached), bound)
    alone, longest = model.costliest(shape)
    standing, together = model.together(shape)
    time = round(surface.curve(whole(alone))(longest) * together / standing)
    found = model.settled(operator, alone, longest).scaled(1.0, "interpolated")
    reading = Demand(operator.demand(new, cached).bytes).bound(model.gpu)
    bound = max(model.bound(operator, alone, longest), operator.runs * reading)
    return with_doubt(model, operator, time, found, min(bound, time / PER_MICROSECOND))


def with_doubt(
    model: Measured, operator: Operator, picoseconds: int, found: Estimate, bound: float
) -> Part | None:
    """A part with an interval: the measured spread, and what its provenance leaves open.

    Where ``found``, which the tables say of the operator, was measured and the step departs from it,
    the part is called interpolated and its interval reaches as far as what was measured.
    """
    if not found.time:
        return None
    time = picoseconds / PER_MICROSECOND
    departs = found.provenance == "measured" and abs(time / found.time - 1) > AS_TIMED
    if departs:
        found = found._replace(provenance="interpolated")
    doubt = DOUBTS[found.provenance] * error(model.profile, operator.table)
    low = time * (1 - hypot(1 - found.low / found.time, doubt))
    high = time * (1 + hypot(found.high / found.time - 1, doubt))
    if departs:
        low, high = min(low, found.low), max(high, found.high)
    return Part(
        operator.name,
        time * MILLI,
        max(low, min(bound, time)) * MILLI,
        high * MILLI,
        bound * MILLI,
        found.provenance,
    )
