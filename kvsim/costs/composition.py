"""A model's iteration as operators of one GPU: how often each runs, on what, and what it needs.

Fused as serving engines fuse a layer: residual and norm, queries with keys and values, rotary
positions, the write of new KV, attention, the output projection, gate with up, activation, down.
What an engine's host does is not here. Assumed, and not measured on a GPU: scores of a sparse indexer
move their bytes at the rate of reads, recurrent states at that of copies, an MoE layer launches
four small kernels around its experts, and recurrences compute at a tenth of the bf16 peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import log
from typing import Literal, NamedTuple

from kvsim.catalog.formats import stream_bytes
from kvsim.catalog.hardware import Gpu
from kvsim.catalog.model import Attention, Layer, Mlp, Stream, weight_bits
from kvsim.costs.matrices import Matrix, layer_matrices, share
from kvsim.costs.operators import Estimate, Profile, Provenance, worse
from kvsim.costs.roofline import peak_flops, sublayers
from kvsim.costs.weights import Products
from kvsim.errors import ConfigError
from kvsim.layout import KVLayout

Per = Literal["token", "row", "sequence", "decode", "prompt"]
"""What an operator's time depends on: tokens of the batch, rows that sample, sequences; decodes and
the context of each; new tokens of a prompt and its past."""
MICRO = 1e6
DEFAULT_BLOCK = 16
ROUTING_KERNELS = 4
COOL, HOT = 256, 512
"""Rows up to which products leave a card cool, being bound by memory, and from which they heat it."""
RECURRENCE_SHARE = 0.1
EIGHT_BIT_DIM = 128
"""Head dim at which attention over fp8 KV was timed; others are as much faster than bf16 as it is."""


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


class Builder:
    """Composes the operators of one model, placed and stored as a layout says."""

    def __init__(
        self,
        layout: KVLayout,
        profile: Profile,
        measured_on: Gpu,
        *,
        weight_dtype: str,
        block_size: int,
        heat: float,
    ) -> None:
        """``heat``: how many times longer products of many rows take than they were timed."""
        self.layout, self.model, self.profile = layout, layout.model, profile
        self.shards, self.block_size = layout.tensor_parallel, block_size
        self.gpu, self.heat = measured_on, heat
        self.products = {kind: Products(profile, kind) for kind in ("bf16", "fp8")}
        given = weight_dtype != "auto"
        self.linear = weight_dtype if given else self.model.linear_dtype
        self.expert = weight_dtype if given else self.model.expert_dtype

    def operators(self) -> Iterator[Operator]:
        """Everything that an iteration runs."""
        layers = self.model.groups.items()
        hidden = self.model.hidden
        yield self.width("embedding", "embedding", 1, hidden)
        norms = 1 + sum(count * sublayers(layer) for layer, count in layers)
        yield self.width("norms", "rms_norm", norms, hidden)
        for layer, count in layers:
            for matrix in layer_matrices(layer, self.model, self.shards):
                dtype = self.model.dtype if matrix.name == "router" else self.linear
                yield self.gemm(matrix, count, dtype, "token")
            if layer.attention is not None:
                yield from self.attention(layer.attention, count)
            if layer.mlp is not None:
                yield from self.mlp(layer.mlp, count)
            if layer.recurrent is not None:
                yield from self.recurrence(layer, count)
        yield from self.exchange()
        head = Matrix("output head", share(self.model.vocab, self.shards), hidden)
        yield self.gemm(head, 1, self.model.dtype, "row")
        yield self.sampling()

    # Products.

    def gemm(self, matrix: Matrix, count: int, dtype: str, per: Per) -> Operator:
        """One weight matrix on the tokens of a batch (or on the rows that sample)."""
        kind = gemm_dtype(dtype)
        products = self.products[kind]
        _, n, k = matrix
        stored, timed = weight_bits(dtype) / 8, 1 if kind == "fp8" else 2

        def demand(m: float, _: float) -> Demand:
            return Demand(n * k * stored, 2 * m * n * k, dtype)

        def estimate(m: float, _: float) -> Estimate:
            found = products.at(n, k, m).scaled(self.slowdown(m))
            if stored == timed:
                return found
            other = Demand(n * k * timed, 2 * m * n * k, "fp8" if kind == "fp8" else "bfloat16")
            return self.like(found, other, demand(m, 0))

        return Operator(matrix.name, per, "gemm", count, estimate, demand)

    def slowdown(self, m: float) -> float:
        """What heat costs a product of ``m`` rows: nothing below COOL, all of it from HOT on."""
        return 1 + (self.heat - 1) * min(max((m - COOL) / (HOT - COOL), 0.0), 1.0)

    def mlp(self, mlp: Mlp, count: int) -> Iterator[Operator]:
        """Activations, and the routed experts."""
        hidden = self.model.hidden
        for weights in (mlp.dense, mlp.shared):
            if weights:
                yield self.width(
                    "activation", "silu_mul", count, share(weights // (3 * hidden), self.shards)
                )
        if mlp.experts:
            yield self.experts(mlp, count)
            yield self.routing(mlp, count)

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

    # Attention.

    def attention(self, attention: Attention, count: int) -> Iterator[Operator]:
        """Positions, the write of new KV, and attention itself by how far it looks back."""
        kv_heads = max(1, attention.kv_heads // self.shards)
        heads = share(attention.heads, self.shards)
        size, dims = self.row_bytes(attention, attention.streams, kv_heads), 0
        for stream in attention.streams:
            dims += max(1, stream.heads // self.shards) * stream.dim
        turned = (
            heads + kv_heads if attention.kind in ("full", "window", "chunked") else heads // 2 + 1
        )
        yield self.width("positions", "rope", count, turned * min(attention.head_dim, 128))
        yield self.write(dims // 2, size, count)
        lookbacks: dict[tuple[bool, int | None], list[Stream]] = {}
        for stream in attention.streams:
            limit = stream.window if stream.window is not None else stream.reach
            lookbacks.setdefault((stream.role == "index", limit), []).append(stream)
        for (index, limit), streams in lookbacks.items():
            yield self.decode(attention, tuple(streams), limit, count, index)
            yield self.prompt(attention, tuple(streams), limit, count, index)

    def write(self, width: int, size: float, count: int) -> Operator:
        """New rows of KV into their slots; ``width`` elements of keys and as many of values."""
        table = self.profile.table("kv_write")
        kind = "fp8" if size < 4 * width else "bf16"
        return Operator(
            "KV write", "token", "kv_write", count, lambda n, _: table.at((kind, width), n), nothing
        )

    def row_bytes(self, attention: Attention, streams: tuple[Stream, ...], kv_heads: int) -> float:
        """Bytes that a query reads per token of context, on one GPU."""
        total = 0.0
        for stream in streams:
            heads = max(1, stream.heads // self.shards)
            total += stream_bytes(self.layout.format, attention, stream, heads) / stream.stride
        return total

    def decode(
        self,
        attention: Attention,
        streams: tuple[Stream, ...],
        limit: int | None,
        count: int,
        index: bool,
    ) -> Operator:
        """One new token of every sequence on its context."""
        kv_heads = max(1, attention.kv_heads // self.shards)
        size = self.row_bytes(attention, streams, kv_heads)
        flops = sum(stream.decode_flops / stream.stride for stream in streams) / self.shards
        look = self.decode_times(attention, streams, size, index)
        stride = streams[0].stride

        def seen(context: float) -> float:
            return context if limit is None else min(context, limit)

        def demand(batch: float, context: float) -> Demand:
            return Demand(batch * seen(context) * size, batch * seen(context) * flops)

        return Operator(
            named("indexer" if index else "decode attention", attention, limit),
            "decode",
            "copy" if index else look[0],
            count,
            lambda batch, context: look[1](batch, seen(context) / stride),
            demand,
        )

    def decode_times(
        self, attention: Attention, streams: tuple[Stream, ...], size: float, index: bool
    ) -> tuple[str, Callable[[float, float], Estimate]]:
        """The table of a kind of attention, and times by batch and rows of context."""
        heads, kv_heads = (
            share(attention.heads, self.shards),
            max(1, attention.kv_heads // self.shards),
        )
        stride = streams[0].stride
        if index:
            return "copy", lambda batch, rows: self.reading(batch * rows * size * stride)
        if attention.kind in ("latent", "compressed"):
            mla = self.profile.table("mla_decode")
            factor = size * stride / (2 * 576)
            return "mla_decode", lambda batch, rows: scaled(
                mla.at(("bf16", heads, batch), rows), factor
            )
        dim, group = attention.head_dim, heads / kv_heads
        elements = sum(max(1, s.heads // self.shards) * s.dim for s in streams) / kv_heads
        element, part = size / kv_heads / elements, elements / (2 * dim)
        return "decode_attention", lambda batch, rows: scaled(
            self.paged(element, dim, group, batch * kv_heads, rows), part
        )

    def paged(self, element: float, dim: int, group: float, units: float, rows: float) -> Estimate:
        """Paged decode of ``units`` sequences times kv heads, ``element`` bytes a number of KV."""
        table = self.profile.table("decode_attention")

        def at(dtype: str, width: int) -> Estimate:
            return table.at((dtype, self.block_size, width, group, units), rows)

        if element >= 2:
            return scaled(at("bf16", dim), element / 2)
        if dim == EIGHT_BIT_DIM:
            return scaled(at("fp8", dim), element)
        ratio = at("fp8", EIGHT_BIT_DIM).time / at("bf16", EIGHT_BIT_DIM).time
        return at("bf16", dim).scaled(ratio * element, "extrapolated")

    def reading(self, size: float) -> Estimate:
        """A kernel that reads ``size`` bytes."""
        found = self.profile.table("copy").at(("read",), size)
        least = self.profile.table("copy").root["read"]
        part = size / least.xs[0]
        if part >= 1:
            return found
        floor = self.profile.launch
        time = floor + part * (found.time - floor)
        return Estimate(time, time, time, "extrapolated")

    def prompt(
        self,
        attention: Attention,
        streams: tuple[Stream, ...],
        limit: int | None,
        count: int,
        index: bool,
    ) -> Operator:
        """New tokens of a prompt on its past and on one another, causally."""
        kv_heads = max(1, attention.kv_heads // self.shards)
        size = self.row_bytes(attention, streams, kv_heads)
        flops = sum(stream.prefill_flops / stream.stride for stream in streams) / self.shards
        heads = share(attention.heads, self.shards)
        width = flops * self.shards / (4 * attention.heads)
        table = self.profile.table("prefill_attention")

        def pairs(new: float, past: float) -> float:
            full = new * past + new * (new + 1) / 2
            return full if limit is None else min(full, new * limit)

        def demand(new: float, past: float) -> Demand:
            rows = past + new if limit is None else min(past, limit) + new
            return Demand(rows * size, pairs(new, past) * flops)

        def estimate(new: float, past: float) -> Estimate:
            equal = (pairs(new, past) - new * (new + 1) / 2) / new
            ways = [
                table.at((way, "bf16", width, heads, new), max(equal, 0.0)) for way in table.root
            ]
            found = min(ways)
            if equal < 0:
                found = found.scaled(1 + equal / ((new + 1) / 2), "extrapolated")
            return found

        name = named("indexer (prompts)" if index else "prompt attention", attention, limit)
        return Operator(name, "prompt", "prefill_attention", count, estimate, demand)

    # The rest.

    def width(self, name: str, table: str, count: int, width: int) -> Operator:
        """An operator on every token that takes its time by the width of a token's row."""
        times = self.profile.table(table)
        return Operator(name, "token", table, count, lambda n, _: times.at((width,), n), nothing)

    def recurrence(self, layer: Layer, count: int) -> Iterator[Operator]:
        """States read and written by every sequence, and the arithmetic of every token."""
        assert layer.recurrent is not None
        stored = self.layout.state_bytes * layer.recurrent.state + 2 * layer.recurrent.conv
        size, flops = stored / self.shards, 4 * layer.recurrent.state / self.shards

        def compute(tokens: float, _: float) -> Estimate:
            time = MICRO * tokens * flops / (self.gpu.bf16_flops * RECURRENCE_SHARE)
            return Estimate(time, time, time, "extrapolated")

        yield Operator(
            "states", "sequence", "copy", count,
            lambda n, _: self.reading(2 * n * size), lambda n, _: Demand(2 * n * size),
        )  # fmt: skip
        yield Operator(
            "recurrence", "token", "copy", count, compute, lambda n, _: Demand(flops=n * flops)
        )

    def sampling(self) -> Operator:
        """Drawing a token from every row of logits."""
        table, vocab = self.profile.table("sample"), self.model.vocab
        return Operator(
            "sampling", "row", "sample", 1, lambda rows, _: table.at((vocab,), rows), nothing
        )

    def exchange(self) -> Iterator[Operator]:
        """What ranks send one another: all-reduces of hidden states, logits, hops between stages."""
        hidden = self.model.hidden * weight_bits(self.model.dtype) / 8
        if self.shards > 1:
            reduces = sum(sublayers(layer) for layer in self.model.layers)
            yield self.collective("all-reduce", "all_reduce", "token", reduces, hidden, 2)
            logits = self.model.vocab * weight_bits(self.model.dtype) / 8
            yield self.collective("logits gather", "all_gather", "row", 1, logits, 1)
        hops = self.layout.pipeline_parallel - 1
        if hops:
            yield self.message(hops, hidden)

    def collective(
        self, name: str, table: str, per: Per, count: int, size: float, passes: int
    ) -> Operator:
        """A ring: every GPU sends ``passes`` times its share of all but one part."""
        times, gpus = self.profile.table(table), self.shards
        known = [value for value in times.root if isinstance(value, int)]
        nearest = min(known, key=lambda value: abs(value - gpus))
        factor = ((gpus - 1) / gpus) / ((nearest - 1) / nearest)
        kind: Provenance = "measured" if gpus == nearest else "projected"

        def estimate(n: float, _: float) -> Estimate:
            return times.at((nearest,), n * size * factor).scaled(1.0, kind)

        def demand(n: float, _: float) -> Demand:
            return Demand(linked=passes * n * size * (gpus - 1) / gpus)

        return Operator(name, per, table, count, estimate, demand)

    def message(self, count: int, size: float) -> Operator:
        """Hidden states from one pipeline stage to the next."""
        times = self.profile.table("send")
        gpus = min(value for value in times.root if isinstance(value, int))
        return Operator(
            "stage hop", "token", "send", count,
            lambda n, _: times.at((gpus,), n * size), lambda n, _: Demand(linked=n * size),
        )  # fmt: skip

    def like(
        self, found: Estimate, its: Demand, wanted: Demand, kind: Provenance = "extrapolated"
    ) -> Estimate:
        """The time of something like what was timed: scaled as the bounds of both on this GPU."""
        return rescaled(
            found, its.bound(self.gpu), wanted.bound(self.gpu), self.profile.launch, kind
        )


def rescaled(
    found: Estimate, bound: float, other: float, floor: float, kind: Provenance
) -> Estimate:
    """A time scaled by the ratio of two bounds, but for the launch, which stays."""
    if bound <= 0:
        return found._replace(provenance=worse(found.provenance, kind))
    low, time, high = (
        min(t, floor) + max(t - floor, 0.0) * other / bound
        for t in (found.low, found.time, found.high)
    )
    return Estimate(time, low, high, worse(found.provenance, kind))


def scaled(found: Estimate, factor: float) -> Estimate:
    """A time of other row sizes: measured where they are equal."""
    return found if factor == 1 else found.scaled(factor, "extrapolated")


def nothing(_: float, __: float) -> Demand:
    """No bound: what is read and written may lie in the cache."""
    return Demand()


def gemm_dtype(dtype: str) -> str:
    """The measured kind of product that computes with weights of a dtype."""
    return "fp8" if dtype in ("fp8", "int8") else "bf16"


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


def named(name: str, attention: Attention, limit: int | None) -> str:
    """The name of an attention with its window, if it has one."""
    if attention.kind == "latent" and name == "decode attention":
        name = "MLA decode attention"
    return name if limit is None else f"{name} (last {limit})"


def unlinked(layout: KVLayout, gpu: Gpu) -> None:
    """Raise a ConfigError if several GPUs of this kind have no known way to talk."""
    if layout.tensor_parallel * layout.pipeline_parallel == 1:
        return
    if gpu.link_bandwidth is None and gpu.pcie_bandwidth is None:
        raise ConfigError(f"{gpu.name}: no link bandwidth is known, so it cannot be parallel")
