"""Attention of a model's layers as operators, by how far they look back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from kvsim.catalog.formats import stream_bytes
from kvsim.catalog.model import Attention, Stream
from kvsim.costs.demand import EVEN, Bends, Demand, Operator, Setting, counts, nothing, scaled
from kvsim.costs.matrices import latent_dims, share
from kvsim.costs.operators import Estimate, tiled
from kvsim.costs.skew import skew

EIGHT_BIT_DIM = 128
"""Head dim at which attention over 8-bit KV was timed; others are as much faster than bf16 as it is."""
INT8_BYTES = 1 + 4 / EIGHT_BIT_DIM
"""Of a number of the int8 KV that was timed, with its part of a row's scale."""

SHORT_PASTS = (64, 128, 256, 512)
"""Where the kernel that is fastest for a prompt changes between two pasts that were timed."""

MLA = ("latent", "compressed")
"""Kinds of attention that the kernel for MLA computes."""


class Lookback(NamedTuple):
    """Streams of an attention that look equally far back."""

    attention: Attention
    streams: tuple[Stream, ...]
    limit: int | None
    """Tokens; None for all."""
    indexer: bool
    """Whether they are an indexer's."""

    @property
    def stride(self) -> int:
        """Tokens of a row."""
        return self.streams[0].stride

    def seen(self, context: float) -> float:
        """Tokens of a context that are read."""
        return context if self.limit is None else min(context, self.limit)

    def within(self, rows: Iterable[int]) -> tuple[int, ...]:
        """Contexts of so many rows that are all seen, and the longest."""
        contexts = tuple(row * self.stride for row in rows)
        if self.limit is None:
            return contexts
        return (*(each for each in contexts if each < self.limit), self.limit)

    def named(self, name: str) -> str:
        """What an operator is called, with its window if it has one."""
        return name if self.limit is None else f"{name} (last {self.limit})"


class Attending(Setting):
    """Composes attention."""

    def attention(self, attention: Attention, count: int) -> Iterator[Operator]:
        """Positions, the write of new KV, and attention itself by how far it looks back."""
        heads, kv_heads = self.heads_of(attention)
        size = self.row_bytes(attention, attention.streams)
        dims = self.row_width(attention.streams)
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
            back = Lookback(attention, tuple(streams), limit, index)
            yield self.decode(back, count)
            yield self.prompt(back, count)
            if attention.kind == "latent" and limit is None and not index:
                yield self.unfolding(attention, count)

    def heads_of(self, attention: Attention) -> tuple[int, int]:
        """Query heads and kv heads of one GPU."""
        return share(attention.heads, self.shards), max(1, attention.kv_heads // self.shards)

    def row_width(self, streams: tuple[Stream, ...]) -> int:
        """Numbers of a token's rows on one GPU."""
        return sum(max(1, stream.heads // self.shards) * stream.dim for stream in streams)

    @property
    def timed_kv(self) -> bool:
        """Whether decodes were timed over KV of this type, by each kind of attention."""
        kinds = {layer.attention.kind for layer in self.model.layers if layer.attention}
        return all(
            self.timed("mla_decode" if kind in MLA else "decode_attention") for kind in kinds
        )

    def timed(self, table: str) -> bool:
        """Whether a kernel was timed with KV of this type; fp16 is as wide as bf16."""
        return self.layout.format.name in {*self.profile.table(table).root, "fp16"}

    def write(self, width: int, size: float, count: int) -> Operator:
        """New rows of KV into their slots; ``width`` elements of keys and as many of values."""
        table = self.profile.table("kv_write")
        kind = "fp8" if size < 4 * width else "bf16"

        def estimate(tokens: float, _: float) -> Estimate:
            found = table.at((kind, width), tokens)
            return found if self.timed("kv_write") else found.scaled(1.0, "extrapolated")

        bends = Bends(counts(table.bends((kind, width))))
        return Operator("KV write", "token", "kv_write", count, estimate, nothing, bends)

    def row_bytes(self, attention: Attention, streams: tuple[Stream, ...]) -> float:
        """Bytes that a query reads per token of context, on one GPU."""
        total = 0.0
        for stream in streams:
            heads = max(1, stream.heads // self.shards)
            total += stream_bytes(self.layout.format, attention, stream, heads) / stream.stride
        return total

    def decode(self, back: Lookback, count: int) -> Operator:
        """One new token of every sequence on its context."""
        size = self.row_bytes(back.attention, back.streams)
        flops = sum(stream.decode_flops / stream.stride for stream in back.streams) / self.shards
        table, times = self.decode_times(back, size)
        stride, seen = back.stride, back.seen
        name = "MLA decode attention" if back.attention.kind == "latent" else "decode attention"

        def demand(batch: float, context: float) -> Demand:
            return Demand(batch * seen(context) * size, batch * seen(context) * flops)

        def estimate(batch: float, context: float) -> Estimate:
            found = times(batch, seen(context) / stride)
            clipped = back.limit is not None and context > back.limit  # all was seen when timed
            return found.scaled(1.0, "extrapolated") if clipped else found

        return Operator(
            back.named("indexer" if back.indexer else name),
            "decode",
            table,
            count,
            estimate,
            demand,
            self.decode_bends(back, table),
            self.unequal(back.attention, table if back.limit is None and not back.indexer else ""),
        )

    def decode_bends(self, back: Lookback, table: str) -> Bends:
        """Batches and contexts with which a kind of attention was timed."""
        if table == "copy":
            return Bends(EVEN[:13], back.within(EVEN[10:]))
        times, (_, kv_heads) = self.profile.table(table), self.heads_of(back.attention)
        each = 1 if table == "mla_decode" else kv_heads
        return Bends(counts(times.before_last, each), back.within(times.xs))

    def unequal(self, attention: Attention, table: str) -> Callable[[float], float]:
        """What decodes of unequal contexts take longer; windows make contexts equal."""
        found = skew(self.profile, table)
        heads, kv_heads = self.heads_of(attention)
        if table == "mla_decode":
            return lambda decodes: found(heads, decodes)
        return lambda decodes: found(heads / kv_heads, decodes * kv_heads)

    def decode_times(
        self, back: Lookback, size: float
    ) -> tuple[str, Callable[[float, float], Estimate]]:
        """The table of a kind of attention, and times by batch and rows of context."""
        attention, stride = back.attention, back.stride
        heads, kv_heads = self.heads_of(attention)
        if back.indexer:
            return "copy", lambda batch, rows: self.reading(batch * rows * size * stride)
        if attention.kind in MLA:
            mla = self.profile.table("mla_decode")
            factor = size * stride / (2 * 576)
            return "mla_decode", lambda batch, rows: scaled(
                mla.at(("bf16", heads, batch), rows), factor
            )
        dim, group = attention.head_dim, heads / kv_heads
        elements = self.row_width(back.streams) / kv_heads
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
        kind, timed = ("fp8", 1.0)
        if self.layout.format.name == "int8" and "int8" in table.root:
            kind, timed = ("int8", INT8_BYTES)
        if dim == EIGHT_BIT_DIM:
            return scaled(at(kind, dim), element / timed)
        ratio = at(kind, EIGHT_BIT_DIM).time / at("bf16", EIGHT_BIT_DIM).time
        return at("bf16", dim).scaled(ratio * element / timed, "extrapolated")

    def prompt(self, back: Lookback, count: int) -> Operator:
        """New tokens of a prompt on its past and on one another, causally."""
        attention, limit = back.attention, back.limit
        size = self.row_bytes(attention, back.streams)
        flops = sum(stream.prefill_flops / stream.stride for stream in back.streams) / self.shards
        heads, _ = self.heads_of(attention)
        width = flops * self.shards / (4 * attention.heads)
        table = self.profile.table("prefill_attention")
        most = table.before_last[-1]
        narrow = self.layout.format.name not in ("bf16", "fp16")

        def pairs(new: float, past: float) -> float:
            full = new * past + new * (new + 1) / 2
            return full if limit is None else min(full, new * limit)

        def demand(new: float, past: float) -> Demand:
            return Demand((back.seen(past) + new) * size, pairs(new, past) * flops)

        def timed(new: float, past: float) -> Estimate:
            return min(table.at((way, "bf16", width, heads, new), past) for way in table.root)

        def estimate(new: float, past: float) -> Estimate:
            new = whole(new)
            if new > most:  # then time is proportional
                part = pairs(new, past) / pairs(most, past)
                return estimate(most, past).scaled(part, "extrapolated")
            equal = (pairs(new, past) - new * (new + 1) / 2) / new
            found = timed(new, max(equal, 0.0))
            if limit is not None and equal < 0:  # no less than the longest that is all seen
                part = 1 + equal / ((new + 1) / 2)
                found = max(found.scaled(part, "extrapolated"), timed(2 * limit - 1, 0.0))
            # Prompts were timed over bf16 only, and over all of their past.
            clipped = limit is not None and past + new > limit
            return found.scaled(1.0, "extrapolated") if narrow or clipped else found

        name = back.named("indexer (prompts)" if back.indexer else "prompt attention")
        bends = self.prompt_bends(limit)
        return Operator(name, "prompt", "prefill_attention", count, estimate, demand, bends)

    def prompt_bends(self, limit: int | None) -> Bends:
        """New tokens and pasts that were timed; and those with which a window is full."""
        table = self.profile.table("prefill_attention")
        timed, pasts = table.before_last, (*SHORT_PASTS, *table.xs)
        if limit is None:
            return Bends(tuple(timed), pasts)
        within = (whole(limit * i / 4) for i in range(1, 9))
        wide = [pair for pair in pairwise(timed) if pair[1] > 1.5 * pair[0] > 3 * limit]
        news = (*timed, *within, *(whole((low + high) / 2) for low, high in wide))
        full = (limit - (new + 1) // 2 for new in news if new < 2 * limit)
        return Bends(news, (*(past for past in pasts if past < limit), *full, limit))

    def unfolding(self, attention: Attention, count: int) -> Operator:
        """Keys and values of a prompt's past, computed from its latents anew for every chunk.

        Latents are gathered from their pages, multiplied, and every head's keys joined with the rotary
        part, as vLLM and SGLang do it: with more than a few queries that is less work than attention to
        latents, which are wider. The products write what the attention that was timed reads.
        """
        rank, rope, v_dim = latent_dims(attention)
        heads, _ = self.heads_of(attention)
        keys = heads * attention.head_dim
        outputs, size = heads * (attention.head_dim - rope + v_dim), 4 * (rank + rope + keys)
        products = self.products["bf16"]

        def estimate(_: float, past: float) -> Estimate:
            if not past:
                return Estimate(0.0, 0.0, 0.0, "extrapolated")
            found = products.at(outputs, rank, past).then(self.reading(past * size))
            return found.scaled(1.0, "extrapolated")

        def demand(_: float, past: float) -> Demand:
            return Demand(flops=2 * past * outputs * rank)

        pasts = (*products.rows(outputs, rank), *self.read_sizes(size))
        return Operator(
            "past's keys, values", "prompt", "gemm", count, estimate, demand, Bends((1,), pasts)
        )


def whole(new: float) -> int:
    """New tokens of a prompt rounded up to whole tiles of its kernel."""
    return int(tiled("prefill_attention", "new", new))
