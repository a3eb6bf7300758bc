"""A model's iteration as operators of one GPU: how often each runs, on what, and what it needs.

Fused as serving engines fuse a layer: residual and norm, queries with keys and values, rotary
positions, the write of new KV, attention, the output projection, gate with up, activation, down.
What an engine's host does is not here. Assumed, and not measured on a GPU: scores of a sparse indexer
and recurrent states move their bytes at the rate of reads, an MoE layer launches four small kernels
around its experts, and recurrences compute at a tenth of the bf16 peak.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvsim.catalog.hardware import Gpu
from kvsim.catalog.model import Layer, Mlp, weight_bits
from kvsim.costs.attending import Attending
from kvsim.costs.demand import EVEN, MICRO, Bends, Demand, Operator, Per, counts, nothing
from kvsim.costs.matrices import Matrix, layer_matrices, share
from kvsim.costs.mixtures import Mixtures
from kvsim.costs.operators import Estimate, Provenance
from kvsim.costs.roofline import sublayers
from kvsim.costs.weights import COOL, HOT, slowdown
from kvsim.errors import ConfigError
from kvsim.layout import KVLayout

RECURRENCE_SHARE = 0.1
TIMED = {"bfloat16", "float16", "fp8"}
"""Types of weights whose products were timed; others take the time of the one that is most alike."""


class Builder(Attending, Mixtures):
    """Composes the operators of one model."""

    @property
    def untimed(self) -> list[str]:
        """What is stored in a type that no kernel was timed with: ``int4 weights``, ``int8 KV``."""
        named = {
            f"{self.linear} weights": self.linear not in TIMED,
            f"{self.expert} experts": bool(self.model.mixtures) and weight_bits(self.expert) != 16,
            f"{self.layout.format.name} KV": not self.timed_kv,
        }
        return [name for name, is_untimed in named.items() if is_untimed]

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
        computed = gemm_dtype(dtype)
        products = self.products[computed]
        _, n, k = matrix
        stored, timed = weight_bits(dtype) / 8, 1 if computed == "fp8" else 2

        def demand(m: float, _: float) -> Demand:
            return Demand(n * k * stored, 2 * m * n * k, dtype)

        def estimate(m: float, _: float) -> Estimate:
            slower = slowdown(self.heat, m)
            kind: Provenance = "measured" if slower == 1 else "interpolated"
            found = products.at(n, k, m).scaled(slower, kind)
            if stored == timed:
                return found if dtype in TIMED else found.scaled(1.0, "extrapolated")
            other = Demand(n * k * timed, 2 * m * n * k, "fp8" if computed == "fp8" else "bfloat16")
            return self.like(found, other, demand(m, 0))

        bends = Bends(tuple(sorted({COOL, HOT, *products.rows(n, k)})))
        return Operator(matrix.name, per, "gemm", count, estimate, demand, bends)

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

    # The rest.

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
            Bends(self.read_sizes(2 * size)),
        )  # fmt: skip
        yield Operator(
            "recurrence", "token", "copy", count,
            compute, lambda n, _: Demand(flops=n * flops), Bends(EVEN),
        )  # fmt: skip

    def sampling(self) -> Operator:
        """Drawing a token from every row of logits."""
        table, vocab = self.profile.table("sample"), self.model.vocab
        return Operator(
            "sampling", "row", "sample", 1,
            lambda rows, _: table.at((vocab,), rows), nothing, Bends(counts(table.bends((vocab,)))),
        )  # fmt: skip

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

        bends = Bends(counts(times.xs, size * factor))
        return Operator(name, per, table, count, estimate, demand, bends)

    def message(self, count: int, size: float) -> Operator:
        """Hidden states from one pipeline stage to the next."""
        times = self.profile.table("send")
        gpus = min(value for value in times.root if isinstance(value, int))
        return Operator(
            "stage hop", "token", "send", count,
            lambda n, _: times.at((gpus,), n * size), lambda n, _: Demand(linked=n * size),
            Bends(counts(times.xs, size)),
        )  # fmt: skip


def gemm_dtype(dtype: str) -> str:
    """The measured kind of product that computes with weights of a dtype."""
    return "fp8" if dtype in ("fp8", "int8") else "bf16"


def unlinked(layout: KVLayout, gpu: Gpu) -> None:
    """Raise a ConfigError if several GPUs of this kind have no known way to talk."""
    if layout.tensor_parallel * layout.pipeline_parallel == 1:
        return
    if gpu.link_bandwidth is None and gpu.pcie_bandwidth is None:
        raise ConfigError(f"{gpu.name}: no link bandwidth is known, so it cannot be parallel")
