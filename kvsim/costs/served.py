"""The step time of a serving engine as its own runs show it: a roofline, and what an engine adds."""

from __future__ import annotations

from math import ceil, hypot, isqrt

from kvsim.catalog.hardware import Gpu
from kvsim.core import PICOSECONDS, BatchShape
from kvsim.costs.roofline import Roofline, check_shares, check_times
from kvsim.costs.series import affine_sum, clipped_sum, larger_sum
from kvsim.layout import KVLayout

CAPTURED = (1, 2, 4, *range(8, 257, 8))
"""Batch sizes for which vLLM captures a CUDA graph; smaller batches are padded to the next."""


class Served(Roofline):
    """What vLLM 0.23 takes for an iteration on an H200.

    On top of the roofline: weights and arithmetic of a step overlap, but not fully (the root of the
    sum of their squares); decodes are padded to the batch sizes of captured graphs; decode attention
    has a second floor of ``attention_floor`` seconds a layer, reached at 25 MB of KV; it slows down
    by ``mixed_slowdown`` if 5 to 64 decodes differ much in length (coefficient of variation over
    0.3); fp8 KV is read in ``fp8_slowdown`` times its bytes' time. A layer with routed experts takes
    ``expert_overhead`` seconds more, and ``experts_in_use`` bounds the share of experts that a batch
    reaches (random weights route nearly all tokens to the same few). A batch with a prompt that is
    larger than any captured graph takes at least its launch: ``eager_launch`` seconds a layer and
    ``expert_launch`` more for one with routed experts.

    Constants, all from one H200: those of dense steps are a least-squares fit to bursts of equal
    requests (Llama-3-8B and Qwen2.5-32B shapes); attention's floor, its speed and its slowdown with fp8
    come from timings of the attention kernel, the slowdown of mixed lengths from a conversation run,
    the launches of dense layers from rows before large batches. Those of routed experts were set by
    hand until the medians of DeepSeek-V2-Lite's bursts agreed.
    """

    label = "fitted to vllm 0.23"

    def __init__(
        self,
        layout: KVLayout,
        gpu: Gpu,
        *,
        weight_dtype: str = "auto",
        memory_efficiency: float = 0.896,
        gemm_efficiency: float = 0.637,
        attention_efficiency: float = 0.586,
        expert_overhead: float = 45e-6,
        eager_launch: float = 0.5e-3,
        expert_launch: float = 2.2e-3,
        experts_in_use: float = 1.0,
        layer_overhead: float = 42e-6,
        prompt_overhead: float = 33e-6,
        sequence_overhead: float = 4e-6,
        attention_floor: float = 7.5e-6,
        read_speedup: float = 1.035,
        mixed_slowdown: float = 1.28,
        fp8_slowdown: float = 1.49,
    ) -> None:
        """Times in seconds, efficiencies as shares of the GPU's peaks."""
        super().__init__(
            layout,
            gpu,
            weight_dtype=weight_dtype,
            memory_efficiency=memory_efficiency,
            gemm_efficiency=gemm_efficiency,
            attention_efficiency=attention_efficiency,
            layer_overhead=layer_overhead,
            prompt_overhead=prompt_overhead,
            sequence_overhead=sequence_overhead,
        )
        check_shares(experts_in_use)
        check_times(attention_floor, expert_overhead, eager_launch, expert_launch)
        slower = fp8_slowdown if layout.dtype.startswith("fp8") else 1.0
        self._read = ceil(self._unlimited.decode * slower / read_speedup)
        self._mixed = ceil(self._read * (mixed_slowdown - 1))
        layers = len(layout.model.layers)
        floor = PICOSECONDS * layers * attention_floor
        self._floor = ceil(floor)
        self._floor_per_token = ceil(floor * layout.gpu_bytes_per_token / layers / 25e6)
        self._in_use = experts_in_use
        routed = sum(bool(layer.mlp and layer.mlp.experts) for layer in layout.model.layers)
        self._step += ceil(PICOSECONDS * routed * expert_overhead)
        self._launch = ceil(PICOSECONDS * (layers * eager_launch + routed * expert_launch))
        self._constants: dict[tuple[int, int, int, int], int] = {}

    def time(self, shape: BatchShape, steps: int = 1) -> int:
        """Picoseconds of ``steps`` iterations in a row: exactly the sum of the single ones."""
        decodes, context, prefills, new, _, _, sampled, _ = shape
        key = (decodes, prefills, new, sampled)
        constant = self._constants.get(key)
        if constant is None:
            constant = self._constants[key] = self._constant(*key)
        total = self._prompt_steps(shape, steps, constant) if new else steps * constant
        total += self._read * affine_sum(context, decodes, steps)
        floor, per_token = self._floor, self._floor_per_token
        total += clipped_sum(context * per_token, decodes * per_token, floor, steps)
        if not new and 5 <= decodes <= 64:
            slow = min(steps, self._mixed_steps(shape))
            total += self._mixed * affine_sum(context, decodes, slow)
        for reads in self._limited:
            limit = decodes * (reads.limit or 0)
            total += reads.decode * clipped_sum(context, decodes, limit, steps)
        return total

    def _prompt_steps(self, shape: BatchShape, steps: int, constant: int) -> int:
        """Iterations with prompts, apart from the decodes' attention: at least their launch."""
        new, pairs = shape.prefill_tokens, shape.prefill_pairs
        if self._limited or shape.decodes + new <= CAPTURED[-1]:
            return steps * constant + self._prompt_attention(shape, steps)
        moves = new * new if shape.prefills == 1 else 0
        pair = self._unlimited.pair
        return larger_sum(constant + pairs * pair, moves * pair, self._launch, 0, steps)

    def _mixed_steps(self, shape: BatchShape) -> int:
        """Steps for which the decodes' lengths vary by more than 0.3 of their mean.

        Their variance stays as it is while they all grow, so this ends when the mean is too large.
        """
        decodes, context = shape.decodes, shape.context_tokens
        spread = decodes * shape.context_squares - context * context
        longest = isqrt(max(0, 100 * spread // 9 - 1))  # of the sum of lengths, to be mixed
        return max(0, (longest - context) // decodes + 1)

    def _constant(self, decodes: int, prefills: int, new: int, sampled: int) -> int:
        tokens, sequences = decodes + new, decodes + prefills
        total = self._step + sequences * self._sequence + (self._prompts if new else 0)
        if not tokens:
            return total
        padded = tokens if new else next((size for size in CAPTURED if size >= tokens), tokens)
        memory, compute = self._weights, padded * self._token
        for part in self._experts:
            memory += part.stream * min(1 - part.missed**tokens, self._in_use)
            compute += part.token * tokens
        if sampled:
            memory += self._head
            compute += sampled * self._row
        busy = hypot(memory, compute)
        busy += max(sequences * self._state, tokens * self._recurrence)
        busy += tokens * (self._write + self._exchange)
        return total + ceil(busy)
