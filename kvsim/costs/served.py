"""What an engine takes for an iteration: the measured operators, and what it adds to them."""

from __future__ import annotations

from functools import cached_property
from math import ceil, inf, log, log2

from kvsim.catalog.hardware import Gpu
from kvsim.core import PICOSECONDS, BatchShape
from kvsim.costs.attending import MLA
from kvsim.costs.curves import Curve, Surface
from kvsim.costs.demand import MICRO, Operator
from kvsim.costs.latents import LatentKernel
from kvsim.costs.operators import Estimate, Profile
from kvsim.costs.profile import PER_MICROSECOND, Measured, from_nothing
from kvsim.costs.roofline import check_shares, check_times, peak_flops
from kvsim.costs.splits import MARGIN, MOST_SPLITS, imbalance, longest, spread_of
from kvsim.costs.weights import multiprocessors
from kvsim.errors import ConfigError
from kvsim.layout import STATE_BYTES, KVLayout

CAPTURED = (1, 2, 4, *range(8, 257, 8))
"""Batch sizes for which vLLM captures a CUDA graph; smaller batches are padded to the next."""


class Served(Measured):
    """What vLLM 0.23 takes for an iteration on a GPU whose operators were measured.

    Operators come from the profile (:class:`.profile.Measured`). The engine adds, each with its own
    constant: time between kernels, ``layer_overhead`` seconds a layer and ``expert_overhead`` more for one
    with routed experts; ``sequence_overhead`` a sequence; decodes padded to the sizes ``captured``.
    Products are no faster than the GPU sustains within its power limit (the profile's ``gemm_sustained``).

    Its attention kernel is FlashAttention-3 on pages, not the fastest of the profile: prompts take
    ``prompt_kernel`` times as long, decodes ``mixed_kernel`` times in a batch with prompts. Where that has
    more tokens than any size ``captured``, contexts are not split: one multiprocessor reads a head's whole
    context, ``unsplit_token`` seconds a token of 128 numbers, while the others go on with the prompts, so
    attention takes no less than that of the longest context. In other batches a share ``tail`` of what
    the busiest multiprocessor has to read beyond the others adds to decode attention (:mod:`.splits`): it
    then has more of the memory's bandwidth. Over fp8 KV decodes take ``fp8_decode`` times what they take over bf16, bound by the
    multiprocessors, so that all of it adds; prompts ``fp8_prompt`` times; queries are quantised in
    ``fp8_overhead`` seconds a layer. Decodes of latent attention take ``latent_start`` seconds a layer,
    and read and compute at the shares ``latent_reading`` and ``latent_computing`` of what the GPU can
    (:mod:`.latents`). Each time the tokens of a batch double they reach ``expert_growth`` times the
    experts of one token more (random weights route most tokens to the same few); without it, all
    choose evenly.
    """

    def __init__(
        self,
        layout: KVLayout,
        gpu: Gpu,
        *,
        profile: str = "auto",
        weight_dtype: str = "auto",
        block_size: int = 16,
        layer_overhead: float = 4.5e-6,
        expert_overhead: float = 15.7e-6,
        sequence_overhead: float = 3e-6,
        prompt_kernel: float = 1.11,
        mixed_kernel: float = 1.28,
        unsplit_token: float = 11e-9,
        tail: float = 0.54,
        fp8_decode: float = 0.755,
        fp8_prompt: float = 0.74,
        fp8_overhead: float = 6e-6,
        latent_start: float = 17e-6,
        latent_reading: float = 0.86,
        latent_computing: float = 0.6,
        expert_growth: float | None = None,
        captured: tuple[int, ...] = CAPTURED,
    ) -> None:
        """Times in seconds, the rest are factors and shares."""
        check_shares(latent_reading, latent_computing)
        check_times(layer_overhead, expert_overhead, sequence_overhead, fp8_overhead, unsplit_token)
        eight_bit = layout.dtype.startswith("fp8")
        self._prompt_kernel = prompt_kernel * (fp8_prompt if eight_bit else 1)
        self._decode_kernel = fp8_decode if eight_bit else 1.0
        self._mixed_kernel, self._tail = mixed_kernel, 1.0 if eight_bit else tail
        self._latents = LatentKernel(latent_start, latent_reading, latent_computing)
        mixtures = layout.model.mixtures
        self._routed, self._growth = next(iter(mixtures), None), expert_growth
        self._captured, self._largest = captured, max(captured, default=0)
        super().__init__(
            in_bf16(layout) if eight_bit else layout,
            gpu,
            profile=profile,
            weight_dtype=weight_dtype,
            block_size=block_size,
            expert_kernel="tiled",
        )
        layers = len(layout.model.layers)
        overhead = layer_overhead + (fp8_overhead if eight_bit else 0)
        self._step = ceil(PICOSECONDS * (layers * overhead + len(mixtures) * expert_overhead))
        self._sequence = ceil(PICOSECONDS * sequence_overhead)
        self._heads = split_heads(layout)
        paged = (one for one in self.some("decode") if one.table == "decode_attention")
        self._reads = Surface.sum([self._reading(operator) for operator in paged])
        slower = self.timed.bf16_flops / gpu.bf16_flops * (fp8_prompt if eight_bit else 1)
        self._unsplit = unsplit(layout, slower * unsplit_token)
        self._processors = processors(self.profile)
        self._scaled: dict[tuple[int, int], Curve] = {}
        self._known: dict[tuple[int, int], int] = {}
        self.label = f"{self.label}, vllm 0.23"

    def time(self, shape: BatchShape, steps: int = 1) -> int:
        """Picoseconds of ``steps`` iterations in a row: exactly the sum of the single ones."""
        decodes, _, prefills, new, _, _, sampled, *_ = shape
        total = steps * self._fixed(decodes, prefills, new, sampled)
        if new and decodes:
            return total + sum(self._mixed_attention(grown(shape, i)) for i in range(steps))
        if new:
            total += self._prompt_attention(shape, steps)
        if decodes:
            total += self._decode_attention(shape, steps)
        return total

    def _mixed_attention(self, shape: BatchShape) -> int:
        """Prompts and decodes in one kernel, which ends when all work is done and the longest is read."""
        shared = self._prompt_attention(shape, 1) + self._decode_attention(shape, 1)
        tokens = shape.decodes + shape.prefill_tokens
        if tokens <= self._largest:
            return shared
        ratio = longest(shape.decodes, spread_of(shape)[0])
        context = round(ratio * shape.context_tokens / shape.decodes)
        return max(
            shared, sum(time * round(min(context, far)) for far, time in self._unsplit.items())
        )

    def _fixed(self, decodes: int, prefills: int, new: int, sampled: int) -> int:
        """What does not depend on any context."""
        if new:
            return self._composed(decodes, prefills, new, sampled)
        found = self._known.get((decodes, sampled))
        if found is None:
            found = self._known[decodes, sampled] = self._composed(decodes, 0, 0, sampled)
        return found

    def _composed(self, decodes: int, prefills: int, new: int, sampled: int) -> int:
        tokens, sequences = decodes + new, decodes + prefills
        padded = next((size for size in self._captured if size >= tokens), tokens)
        total = self._constant(tokens if new else padded, sequences, sampled)
        return total + self._step + sequences * self._sequence

    def _decode_attention(self, shape: BatchShape, steps: int) -> int:
        decodes, context = shape.decodes, shape.context_tokens
        if shape.prefill_tokens:
            return self._decode_curve(decodes, -1).total(context, decodes, steps)
        place, lasts = spread_of(shape)
        curve = self._decode_curve(decodes, place)
        if steps <= lasts:
            return curve.total(context, decodes, steps)
        rest = self._decode_attention(grown(shape, lasts), steps - lasts)
        return curve.total(context, decodes, lasts) + rest

    def _decode_curve(self, decodes: int, place: int) -> Curve:
        """Attention by context of a batch as unequal as ``place`` says; -1 beside prompts."""
        curve = self._scaled.get((decodes, place))
        if curve is None:
            curve = self._scaled[decodes, place] = self._decodes_made(decodes, place)
        return curve

    def _decodes_made(self, decodes: int, place: int) -> Curve:
        factor = self._decode_kernel
        if not self._heads:  # latent attention of decodes is a call of its own, cut as ever
            return self._decode_table.curve(decodes, decodes, factor)
        if place < 0:
            return self._decode_table.curve(decodes, decodes, factor * self._mixed_kernel)
        curve = self._decode_table.curve(decodes, decodes, factor)
        waiting = imbalance(decodes, self._heads, place, self._processors) - MARGIN
        if waiting > 0:
            curve += self._reads.curve(1, decodes, factor * self._tail * waiting * decodes)
        if not place and decodes * self._heads * MOST_SPLITS < self._processors:
            # Splits of one more would have idle multiprocessors to themselves.
            curve = curve.capped(self._decode_curve(decodes + 1, 0), decodes, decodes + 1)
        return curve

    def _reading(self, operator: Operator) -> Surface:
        """Picoseconds in which the GPU's whole bandwidth reads a sequence, by its context."""
        contexts = from_nothing(operator.bends.contexts)
        least = [PER_MICROSECOND * self.bound(operator, 1, context) for context in contexts]
        return Surface([1], contexts, [least])

    def settled(self, operator: Operator, x: float, y: float = 0.0) -> Estimate:
        """Microseconds of all runs of an operator with the engine's kernels."""
        if operator.table == "moe":
            return self._experts(operator, x)
        found = super().settled(operator, x, y)
        if operator.table == "mla_decode":
            one, demand = found.scaled(1 / operator.runs), operator.demand(x, y)
            ours = self._latents.instead(one, demand, x, self.gpu, processors(self.profile))
            return ours.scaled(operator.runs)
        if operator.per == "prompt":
            return found.scaled(self._prompt_kernel)
        if operator.table == "gemm":
            return no_faster(found, self._sustained(operator, x))
        return found

    def _experts(self, operator: Operator, tokens: float) -> Estimate:
        """Routed experts: those that the tokens reach are read, and all tokens are computed.

        Many tokens on few experts are computed at the rate of the largest batch that was timed, whose
        tiles are full.
        """
        found = super().settled(operator, self._as_if_even(tokens))
        least = self._sustained(operator, tokens)
        if self._growth is not None:
            most = self.profile.table("moe").xs[-1]
            least = max(least, super().settled(operator, most).time * tokens / most)
        return no_faster(found, least)

    def _as_if_even(self, tokens: float) -> float:
        """Tokens that would reach as many experts if each chose evenly."""
        if self._growth is None or self._routed is None or tokens <= 1:
            return tokens
        experts, top_k = self._routed.experts, self._routed.top_k
        share = top_k * (1 + self._growth * log2(tokens)) / experts
        return min(tokens, log(1 - share) / log(1 - top_k / experts)) if share < 1 else tokens

    def _sustained(self, operator: Operator, x: float) -> float:
        """Microseconds of its arithmetic at the rate that the power limit allows for long.

        That of the product whose weights are nearest in size: larger ones are held back more.
        """
        demand, weights = operator.demand(x, 0), max(1.0, operator.demand(1.0, 0).flops / 2)
        like = min(self._rates, key=lambda size: abs(log(size / weights)))
        rate = self._rates[like] * peak_flops(self.gpu, demand.dtype)
        return operator.runs * MICRO * demand.flops / rate

    @cached_property
    def _rates(self) -> dict[int, float]:
        """Shares of the peak that products keep up for seconds (their last times), by weights."""
        rates = {}
        for one in self.profile.series("gemm_sustained"):
            m, n, k = one["at"]
            rates[n * k] = 2 * m * n * k * MICRO / one["median"][-1] / self.timed.bf16_flops
        return rates


def no_faster(found: Estimate, least: float) -> Estimate:
    """The estimate, or the least time if that is longer."""
    low, high = max(found.low, least), max(found.high, least)
    return found._replace(time=max(found.time, least), low=low, high=high)


def grown(shape: BatchShape, steps: int) -> BatchShape:
    """A batch after some steps."""
    if not steps:
        return shape
    decodes, context, squares = shape.decodes, shape.context_tokens, shape.context_squares
    new = shape.prefill_tokens if shape.prefills == 1 else 0
    return shape._replace(
        context_tokens=context + steps * decodes,
        context_squares=squares + steps * (2 * context + steps * decodes),
        prefill_context=shape.prefill_context + steps * new,
        prefill_pairs=shape.prefill_pairs + steps * new * new,
    )


def in_bf16(layout: KVLayout) -> KVLayout:
    """The same placement with KV as wide as activations."""
    shards, stages = layout.tensor_parallel, layout.pipeline_parallel
    state = next(name for name, size in STATE_BYTES.items() if size == layout.state_bytes)
    return KVLayout(layout.model, "bf16", shards, stages, state_dtype=state)


def split_heads(layout: KVLayout) -> int:
    """KV heads on a GPU of the layers whose attention is split by context; 0 for latent attention."""
    kinds = [layer.attention for layer in layout.model.layers if layer.attention is not None]
    heads = [one.kv_heads for one in kinds if one.kind not in MLA]
    return max(1, heads[0] // layout.tensor_parallel) if heads else 0


def unsplit(layout: KVLayout, token: float) -> dict[float, int]:
    """By how far layers look back, picoseconds in which one multiprocessor reads a token of context.

    ``token``: seconds that a head of 128 numbers takes. None for latent attention.
    """
    found: dict[float, int] = {}
    for layer, count in layout.model.groups.items():
        if layer.attention is not None and layer.attention.kind not in MLA:
            stream = layer.attention.streams[0]
            far = min(stream.window or inf, stream.reach or inf)
            time = ceil(PICOSECONDS * count * token * layer.attention.head_dim / 128)
            found[far] = found.get(far, 0) + time
    return found


def processors(profile: Profile) -> int:
    """Multiprocessors of the GPU that was measured; ConfigError where the profile does not say."""
    found = multiprocessors(profile)
    if found is None:
        raise ConfigError(f"{profile.source}: runs[0].multiprocessors is missing")
    return found
