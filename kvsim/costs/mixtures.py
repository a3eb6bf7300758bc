"""Mixtures of experts as operators: the measured layer that is most like one, scaled."""

from __future__ import annotations

from math import log

from kvsim.catalog.model import Mlp, weight_bits
from kvsim.costs.demand import Demand, Operator, Setting, nothing
from kvsim.costs.matrices import share
from kvsim.costs.operators import Estimate, Profile

ROUTING_KERNELS = 4


class Mixtures(Setting):
    """Composes routed experts."""

    def experts(self, mlp: Mlp, count: int) -> Operator:
        """Routed experts: the measured layer that is most like this one, scaled by what both need."""
        width = share(mlp.expert // (3 * self.model.hidden) or 1, self.shards)
        wanted = (mlp.experts, mlp.top_k, self.model.hidden, width)
        measured = self.profile.table("moe")
        nearest = min(expert_layers(self.profile), key=lambda layer: distance(layer, wanted))

        def demand(tokens: float, _: float) -> Demand:
            return expert_demand(mlp.expert / self.shards, mlp, tokens, self.expert)

        def estimate(tokens: float, _: float) -> Estimate:
            ways = [measured.at((way, "bf16", *nearest), tokens) for way in measured.root]
            found = min(ways)
            experts, top_k, hidden, inter = nearest
            twin = Mlp(experts=experts, top_k=top_k, expert=3 * hidden * inter)
            other = expert_demand(twin.expert, twin, tokens, "bfloat16")
            same = nearest == wanted and weight_bits(self.expert) == 16
            return found if same else self.like(found, other, demand(tokens, 0), "extrapolated")

        return Operator("experts", "token", "moe", count, estimate, demand)

    def routing(self, mlp: Mlp, count: int) -> Operator:
        """Choosing experts, sorting rows and summing what the experts give."""
        table, hidden = self.profile.table("silu_mul"), self.model.hidden
        width = (mlp.top_k + 1) * hidden / 3  # a silu of this width moves as much as the sum

        def estimate(tokens: float, _: float) -> Estimate:
            moved = table.at((width,), tokens)
            rest = (ROUTING_KERNELS - 1) * self.profile.launch
            return moved.then(Estimate(rest, rest, rest, "extrapolated"))

        return Operator("routing", "token", "silu_mul", count, estimate, nothing)


def expert_layers(profile: Profile) -> list[tuple[int, ...]]:
    """Layers whose experts were timed: experts, experts a token, hidden size, width."""
    return list(dict.fromkeys(tuple(one["at"][2:]) for one in profile.series("moe")))


def distance(layer: tuple[int, ...], wanted: tuple[int, ...]) -> float:
    """How unlike two mixtures are: ratios of expert size, experts and experts a token, in logs."""
    experts, top_k = (log(a / b) for a, b in zip(layer[:2], wanted[:2], strict=True))
    size = log(layer[2] * layer[3] / (wanted[2] * wanted[3]))
    return abs(size) + abs(experts - top_k) + 0.1 * abs(experts)


def expert_demand(weights: float, mlp: Mlp, tokens: float, dtype: str) -> Demand:
    """Experts that ``tokens`` tokens choose among evenly: their weights read once, and their FLOPs."""
    chosen = mlp.experts * (1 - (1 - mlp.top_k / mlp.experts) ** tokens)
    size = chosen * weights * weight_bits(dtype) / 8
    return Demand(size, 2 * tokens * mlp.top_k * weights, dtype)
