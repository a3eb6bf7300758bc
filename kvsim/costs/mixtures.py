"""Mixtures of experts as operators: the measured layer that is most like one, scaled."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log
from typing import NamedTuple

from kvsim.catalog.hardware import Gpu
from kvsim.catalog.model import Mlp, weight_bits
from kvsim.costs.demand import Bends, Demand, Operator, Setting, counts, nothing, rescaled
from kvsim.costs.matrices import share
from kvsim.costs.operators import Estimate, Profile

ROUTING_KERNELS = 4
FEW = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Tokens that choose more and more of the experts."""


class MoeLayer(NamedTuple):
    """Routed experts as they were timed, on one GPU."""

    experts: int
    top_k: int
    """Experts a token."""
    hidden: int
    width: int


class Mixtures(Setting):
    """Composes routed experts."""

    def experts(self, mlp: Mlp, count: int) -> Operator:
        """Routed experts: the measured layer that is most like this one, scaled by what both need."""
        width = share(mlp.expert // (3 * self.model.hidden) or 1, self.shards)
        wanted = MoeLayer(mlp.experts, mlp.top_k, self.model.hidden, width)
        nearest = nearest_layer(self.profile, wanted)

        def demand(tokens: float, _: float) -> Demand:
            return expert_demand(mlp.expert / self.shards, mlp, tokens, self.expert)

        def estimate(tokens: float, _: float) -> Estimate:
            found = layer_time(self.profile, nearest, tokens, self.expert_kernel)
            if nearest == wanted and weight_bits(self.expert) == 16:
                return found
            return self.like(found, layer_demand(nearest, tokens), demand(tokens, 0))

        bends = Bends((*FEW, *counts(quarters(self.profile.table("moe").xs))))
        return Operator("experts", "token", "moe", count, estimate, demand, bends)

    def routing(self, mlp: Mlp, count: int) -> Operator:
        """Choosing experts, sorting rows and summing what the experts give."""
        table, hidden = self.profile.table("silu_mul"), self.model.hidden
        width = (mlp.top_k + 1) * hidden / 3  # a silu of this width moves as much as the sum

        def estimate(tokens: float, _: float) -> Estimate:
            moved = table.at((width,), tokens)
            rest = (ROUTING_KERNELS - 1) * self.profile.launch
            return moved.then(Estimate(rest, rest, rest, "extrapolated"))

        bends = Bends(counts(table.bends((width,))))
        return Operator("routing", "token", "silu_mul", count, estimate, nothing, bends)


def quarters(xs: Sequence[int]) -> list[float]:
    """Values and three between each two of them: bounds that a time is scaled by bend anywhere."""
    return [low + (high - low) * i / 4 for low, high in pairwise(xs) for i in range(4)] + [*xs[-1:]]


def stand_in(profile: Profile, gpu: Gpu, wanted: MoeLayer, tokens: int) -> Estimate:
    """Time of the experts of a layer that was not timed, in bf16 on the profile's GPU."""
    nearest = nearest_layer(profile, wanted)
    before, after = (layer_demand(layer, tokens).bound(gpu) for layer in (nearest, wanted))
    found = layer_time(profile, nearest, tokens)
    return rescaled(found, before, after, profile.launch, "extrapolated")


def nearest_layer(profile: Profile, wanted: MoeLayer) -> MoeLayer:
    """The timed layer that is most like another."""
    layers = dict.fromkeys(MoeLayer(*one["at"][2:]) for one in profile.series("moe"))
    return min(layers, key=lambda layer: distance(layer, wanted))


def layer_time(profile: Profile, layer: MoeLayer, tokens: float, kernel: str = "") -> Estimate:
    """Time of a timed layer's experts by one of the kernels; without a name by the fastest."""
    table = profile.table("moe")
    ways = [kernel] if kernel else table.root
    return min(table.at((way, "bf16", *layer), tokens) for way in ways)


def layer_demand(layer: MoeLayer, tokens: float) -> Demand:
    """What the experts of a layer need in bf16."""
    experts, top_k, hidden, width = layer
    mlp = Mlp(experts=experts, top_k=top_k, expert=3 * hidden * width)
    return expert_demand(mlp.expert, mlp, tokens, "bfloat16")


def distance(layer: MoeLayer, wanted: MoeLayer) -> float:
    """How unlike two mixtures are: ratios of expert size, experts and experts a token, in logs."""
    experts, top_k = (log(a / b) for a, b in zip(layer[:2], wanted[:2], strict=True))
    size = log(layer[2] * layer[3] / (wanted[2] * wanted[3]))
    return abs(size) + abs(experts - top_k) + 0.1 * abs(experts)


def expert_demand(weights: float, mlp: Mlp, tokens: float, dtype: str) -> Demand:
    """Experts that ``tokens`` tokens choose among evenly: their weights read once, and their FLOPs."""
    chosen = mlp.experts * (1 - (1 - mlp.top_k / mlp.experts) ** tokens)
    size = chosen * weights * weight_bits(dtype) / 8
    return Demand(size, 2 * tokens * mlp.top_k * weights, dtype)
