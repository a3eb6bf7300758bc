"""The parts that an iteration is composed of: operators, and the least that each needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil, floor
from typing import Literal, NamedTuple

from kvsim.catalog.hardware import Gpu
from kvsim.costs.operators import Estimate, Profile, Provenance, worse
from kvsim.costs.roofline import peak_flops
from kvsim.costs.weights import Products
from kvsim.layout import KVLayout

Per = Literal["token", "row", "sequence", "decode", "prompt"]
"""What an operator's time depends on: tokens of the batch, rows that sample, sequences; decodes and
the context of each; new tokens of a prompt and its past."""
MICRO = 1e6
EVEN = tuple(2**i for i in range(23))
"""Where times that follow from bytes or FLOPs alone are looked up."""


class Demand(NamedTuple):
    """The least that an operator moves and computes."""

    bytes: float = 0.0
    flops: float = 0.0
    dtype: str = "bfloat16"
    linked: float = 0.0
    """Bytes sent to other GPUs."""

    def bound(self, gpu: Gpu) -> float:
        """Microseconds below which no machine with the GPU's peaks can do it."""
        link = gpu.link_bandwidth or gpu.pcie_bandwidth
        sent = self.linked / link if self.linked and link else 0.0
        compute = self.flops / peak_flops(gpu, self.dtype)
        return MICRO * max(self.bytes / gpu.bandwidth, compute, sent)


class Bends(NamedTuple):
    """Where a time bends: between these it is linear in its arguments, or nearly so."""

    counts: tuple[int, ...]
    """Tokens, rows, sequences, decodes, or new tokens of a prompt."""
    contexts: tuple[int, ...] = ()
    """Tokens of each decode's context, or of a prompt's past."""


class Operator(NamedTuple):
    """One part of an iteration, all layers together."""

    name: str
    per: Per
    table: str
    """The table that its time comes from."""
    runs: int
    """How often it runs in an iteration."""
    estimate: Callable[[float, float], Estimate]
    """Time of one run on the profile's GPU, by what it depends on."""
    demand: Callable[[float, float], Demand]
    """The least that one run needs."""
    bends: Bends
    """Where the estimate bends."""
    skew: Callable[[float], float] = lambda decodes: 0.0
    """Microseconds that one run of so many decodes takes longer times how unequal they are
    (:func:`.skew.inequality`)."""


class Setting:
    """A model, placed and stored as a layout says, and the GPU whose times it is composed of."""

    def __init__(
        self,
        layout: KVLayout,
        profile: Profile,
        measured_on: Gpu,
        *,
        weight_dtype: str,
        block_size: int,
        heat: float,
        expert_kernel: str = "",
    ) -> None:
        """``heat``: how many times longer products of many rows take than they were timed;
        ``expert_kernel``: which of those timed computes routed experts, the fastest without a name.
        """
        self.layout, self.model, self.profile = layout, layout.model, profile
        self.shards, self.block_size = layout.tensor_parallel, block_size
        self.gpu, self.heat, self.expert_kernel = measured_on, heat, expert_kernel
        self.products = {kind: Products(profile, kind) for kind in ("bf16", "fp8")}
        self.linear, self.expert = self.model.stored_as(weight_dtype)

    def width(self, name: str, table: str, count: int, width: int) -> Operator:
        """An operator on every token that takes its time by the width of a token's row."""
        times = self.profile.table(table)
        return Operator(
            name, "token", table, count,
            lambda n, _: times.at((width,), n), nothing, Bends(counts(times.bends((width,)))),
        )  # fmt: skip

    def read_sizes(self, size: float) -> tuple[int, ...]:
        """Numbers of things of ``size`` bytes at which the time of :meth:`reading` them bends."""
        return counts(self.profile.line("copy", "read").xs, size)

    def reading(self, size: float) -> Estimate:
        """A kernel that was not timed and reads ``size`` bytes."""
        found = self.profile.table("copy").at(("read",), size)
        least = self.profile.line("copy", "read")
        part = size / least.xs[0]
        if part >= 1:
            return found._replace(provenance="extrapolated")
        launch = self.profile.launch
        time = launch + part * (found.time - launch)
        return Estimate(time, time, time, "extrapolated")

    def like(
        self, found: Estimate, its: Demand, wanted: Demand, kind: Provenance = "extrapolated"
    ) -> Estimate:
        """The time of something like what was timed: scaled as the bounds of both on this GPU."""
        return rescaled(
            found, its.bound(self.gpu), wanted.bound(self.gpu), self.profile.launch, kind
        )


def counts(xs: Iterable[float], size: float = 1.0) -> tuple[int, ...]:
    """Whole numbers of things of a size just below and above those that were timed; ascending."""
    places = (x / size for x in xs)
    return tuple(sorted({max(1, side(place)) for place in places for side in (floor, ceil)}))


def rescaled(
    found: Estimate, bound: float, other: float, launch: float, kind: Provenance
) -> Estimate:
    """A time scaled by the ratio of two bounds, but for the launch, which stays."""
    if bound <= 0:
        return found._replace(provenance=worse(found.provenance, kind))
    low, time, high = (
        min(t, launch) + max(t - launch, 0.0) * other / bound
        for t in (found.low, found.time, found.high)
    )
    return Estimate(time, low, high, worse(found.provenance, kind))


def scaled(found: Estimate, factor: float) -> Estimate:
    """A time of other row sizes: measured where they are equal."""
    return found if factor == 1 else found.scaled(factor, "extrapolated")


def nothing(_: float, __: float) -> Demand:
    """No bound: what is read and written may lie in the cache."""
    return Demand()
