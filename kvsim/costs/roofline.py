"""An analytic step time: every operation takes what its bytes or its FLOPs need, whichever is more.

    step = sum over operations of max(bytes / bandwidth, FLOPs / peak) + all-reduce + overhead

Operations are the weights that every token uses, the routed experts, the output head, attention of
decodes, attention of prompts, and recurrent states. Only attention changes within a leap, and it is
affine in the step, so any number of steps has a closed form.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from kvsim.catalog.hardware import Gpu
from kvsim.catalog.model import Layer, Mlp, ModelSpec, weight_bits
from kvsim.core import PICOSECONDS, BatchShape
from kvsim.costs.attention import Reads, attention_reads, limited_attention
from kvsim.costs.series import clipped_sum, larger_sum
from kvsim.errors import ConfigError
from kvsim.layout import KVLayout


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts of equal layers, in picoseconds."""

    missed: float
    """Probability that a token does not choose a given expert."""
    stream: float
    """Reading all of them."""
    token: float
    """Arithmetic of one token."""


class Roofline:
    """The roofline of a model on a GPU, per tensor-parallel rank, with the KV layout's dtype.

    The efficiencies are sustained over nominal rates, and the overheads what remains of a step,
    of vLLM 0.23 on an H200 (least squares over 1,595 steps of Llama-3-8B and Qwen2.5-32B shapes):
    4.3 of 4.8 TB/s, 650 of 989 TFLOP/s in GEMMs and 590 in prefill attention, 42 us a layer, 33 us
    more in batches with a prompt (no full CUDA graph), 4 us a sequence. On other GPUs they are an
    assumption. ``all_reduce_latency`` is assumed, not measured. With efficiencies of 1 and overheads
    of 0 the result is the physical bound; it is never below that.

    Simplifications: experts are chosen uniformly and independently, so n tokens read
    1 - (1 - k/E)^n of them. Windows and sparse attention clip the context of the batch as a whole,
    min(context, n * window), as if its sequences were equally long. MLA decodes in the absorbed
    form; re-expanding cached latents for later chunks of a prompt is left out. Pipeline stages are
    passed one after another, and do not overlap over batches.
    """

    label = "analytic"

    def __init__(
        self,
        layout: KVLayout,
        gpu: Gpu,
        *,
        weight_dtype: str = "auto",
        memory_efficiency: float = 0.9,
        gemm_efficiency: float = 0.66,
        attention_efficiency: float = 0.6,
        layer_overhead: float = 42e-6,
        prompt_overhead: float = 33e-6,
        sequence_overhead: float = 4e-6,
        all_reduce_latency: float = 8e-6,
    ) -> None:
        """Times in seconds, efficiencies as shares of the GPU's dense peaks."""
        check_shares(memory_efficiency, gemm_efficiency, attention_efficiency)
        check_times(layer_overhead, prompt_overhead, sequence_overhead, all_reduce_latency)
        model, shards = layout.model, layout.tensor_parallel
        linear, expert = model.stored_as(weight_dtype)
        byte = PICOSECONDS / (gpu.bandwidth * memory_efficiency)
        flop = PICOSECONDS / (peak_flops(gpu, linear) * gemm_efficiency * shards)
        attention_flop = PICOSECONDS / (gpu.bf16_flops * attention_efficiency * shards)

        shared, router = always_used(model)
        weight = byte / 8 / shards
        self._weights = weight * (weight_bits(linear) * shared + weight_bits(model.dtype) * router)
        self._token = 2 * flop * (shared + router)
        self._experts = routed_experts(model, weight * weight_bits(expert), flop)
        self._head = weight * weight_bits(model.dtype) * model.head
        self._row = 2 * flop * model.head
        state = sum(stage.state for stage in layout.stages)
        self._state = 2 * byte * state
        self._recurrence = 4 * flop * recurrent_elements(model)
        reads = attention_reads(model, layout.format, shards, byte, attention_flop)
        self._unlimited = next((read for read in reads if read.limit is None), Reads(None, 0, 0, 0))
        self._limited = tuple(read for read in reads if read.limit is not None)
        self._write = byte * sum(float(stage.short + stage.index) for stage in layout.stages)

        layers = len(model.layers)
        exchange = Exchange.of(layout, gpu, all_reduce_latency)
        self._step = ceil(PICOSECONDS * (layers * layer_overhead + exchange.latency))
        self._prompts = ceil(PICOSECONDS * layers * prompt_overhead)
        self._sequence = ceil(PICOSECONDS * sequence_overhead)
        self._exchange = PICOSECONDS * exchange.per_token
        self._decode_only: dict[tuple[int, int], int] = {}
        self._streamed: dict[int, int] = {}

    def time(self, shape: BatchShape, steps: int = 1) -> int:
        """Picoseconds of ``steps`` iterations in a row: exactly the sum of the single ones."""
        decodes, context, prefills, new, _, _, sampled, *_ = shape
        if new:
            total = steps * self._constant(decodes, prefills, new, sampled)
            total += self._prompt_attention(shape, steps)
        else:
            key = (decodes, sampled)
            constant = self._decode_only.get(key)
            if constant is None:
                constant = self._constant(decodes, prefills, 0, sampled)
                self._decode_only[key] = constant
            total = steps * constant
        read = steps * context + decodes * (steps * (steps - 1) >> 1)
        total += self._unlimited.decode * read
        for reads in self._limited:
            limit = decodes * (reads.limit or 0)
            total += reads.decode * clipped_sum(context, decodes, limit, steps)
        return total

    def _constant(self, decodes: int, prefills: int, new: int, sampled: int) -> int:
        """The part of a step that does not depend on any context."""
        tokens, sequences = decodes + new, decodes + prefills
        total = self._step + sequences * self._sequence
        if not tokens:
            return total
        busy = max(self._weights, tokens * self._token)
        busy += max(sequences * self._state, tokens * self._recurrence)
        busy += tokens * (self._write + self._exchange)
        if sampled:
            busy += max(self._head, sampled * self._row)
        return total + ceil(busy) + self._expert_time(tokens) + (self._prompts if new else 0)

    def _expert_time(self, tokens: int) -> int:
        """Routed experts for a batch of ``tokens``."""
        if not self._experts:
            return 0
        time = self._streamed.get(tokens)
        if time is None:
            time = self._streamed[tokens] = ceil(
                sum(
                    max(part.stream * (1 - part.missed**tokens), part.token * tokens)
                    for part in self._experts
                )
            )
        return time

    def _prompt_attention(self, shape: BatchShape, steps: int) -> int:
        """Attention of the prompts' new tokens; a single chunk moves on by itself every step."""
        _, _, prefills, new, cached, pairs, *_ = shape
        moves = new if prefills == 1 else 0
        reads = self._unlimited
        total = larger_sum(
            pairs * reads.pair,
            moves * new * reads.pair,
            (cached + new) * reads.row,
            moves * reads.row,
            steps,
        )
        for reads in self._limited:
            total += limited_attention(reads, shape, moves, steps)
        return total


def always_used(model: ModelSpec) -> tuple[int, int]:
    """Parameters that every token uses: mixers, dense MLPs and shared experts; and routers."""
    shared = router = 0
    for layer in model.layers:
        mlp = layer.mlp or Mlp()
        shared += layer.mixer_weights + mlp.dense + mlp.shared
        router += mlp.router
    return shared, router


def routed_experts(model: ModelSpec, weight: float, flop: float) -> tuple[Experts, ...]:
    """Routed experts; ``weight`` and ``flop`` are picoseconds per parameter read and per FLOP."""
    found = []
    for layer, count in model.groups.items():
        mlp = layer.mlp
        if mlp is not None and mlp.experts:
            stream = count * mlp.experts * mlp.expert * weight
            token = 2 * flop * count * mlp.top_k * mlp.expert
            found.append(Experts(1 - mlp.top_k / mlp.experts, stream, token))
    return tuple(found)


def recurrent_elements(model: ModelSpec) -> int:
    """Elements of recurrent state that one token updates and reads, over all layers."""
    return sum(layer.recurrent.state for layer in model.layers if layer.recurrent is not None)


@dataclass(frozen=True, slots=True)
class Exchange:
    """What ranks send each other in a step, in seconds."""

    latency: float
    """Per step."""
    per_token: float

    @classmethod
    def of(cls, layout: KVLayout, gpu: Gpu, latency: float) -> Exchange:
        """A ring all-reduce of the hidden states after every mixer and MLP; stages pass them on."""
        shards, hops = layout.tensor_parallel, layout.pipeline_parallel - 1
        if shards == 1 and hops == 0:
            return cls(0.0, 0.0)
        bandwidth = gpu.link_bandwidth or gpu.pcie_bandwidth
        if bandwidth is None:
            raise ConfigError(f"{gpu.name}: no link bandwidth is known, so it cannot be parallel")
        reduces = 0 if shards == 1 else sum(map(sublayers, layout.model.layers))
        sent = reduces * 2 * (shards - 1) / shards + hops
        hidden = layout.model.hidden * weight_bits(layout.model.dtype) / 8
        return cls((reduces + hops) * latency, sent * hidden / bandwidth)


def sublayers(layer: Layer) -> int:
    """Residual branches of a layer: its mixers (side by side count once) and its MLP."""
    mixes = layer.attention is not None or layer.recurrent is not None
    return mixes + (layer.mlp is not None)


def peak_flops(gpu: Gpu, dtype: str) -> float:
    """Dense peak for GEMMs with weights of a dtype; a dtype without its own rate computes in bf16."""
    own = {"fp8": gpu.fp8_flops, "int8": gpu.int8_ops, "nvfp4": gpu.fp4_flops}.get(dtype)
    return gpu.bf16_flops if own is None else max(own, gpu.bf16_flops)


def check_shares(*shares: float) -> None:
    """Efficiencies lie above 0 and at most at 1: no machine beats its peak."""
    for share in shares:
        if not 0 < share <= 1:
            raise ConfigError(f"roofline efficiency {share}: expected above 0, at most 1")


def check_times(*times: float) -> None:
    """Overheads are not negative."""
    for time in times:
        if not 0 <= time < 1e3:
            raise ConfigError(f"roofline overhead {time}: expected seconds, 0 or more")
