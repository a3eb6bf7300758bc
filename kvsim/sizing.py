"""How much KV cache fits: the memory waterfall of one engine on its GPUs.

The engine may use ``gpu_memory_utilization`` of the device's memory. Weights come first, then what it
sets aside for activations, CUDA graphs and communication, and the rest is the KV pool, in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, floor

from kvsim.catalog.hardware import GIB, Gpu
from kvsim.catalog.model import Layer, ModelSpec, weight_bits
from kvsim.errors import CapacityError, ConfigError
from kvsim.layout import KVLayout, indivisible, pipeline_stages

SAMPLER_BYTES = 45
"""Per sequence and vocabulary entry: bf16 logits, their fp32 copy, and the values, indices and
workspace of a full sort for top-p, all alive at the peak of the profiling run."""

GRAPH_BYTES = 20_000_000
"""Per layer: CUDA graphs of 35 batch sizes."""

FIXED_BYTES = 250_000_000
"""Workspaces and what lives outside PyTorch's allocator.

The three figures above are read off four starts of vLLM 0.23.0 on one H200 (Llama-3-8B with 2,048
and 8,192 batched tokens, Qwen2.5-32B, DeepSeek-V2-Lite; 128 sequences; 1.38, 1.48, 2.44 and 1.52 GB
between weights and pool): with them each of the four pools comes out to 0.3 %."""

COMMUNICATION_BYTES = 1_920_000_000
"""NCCL and all-reduce buffers per GPU once tensor parallelism is used: 1.79 GiB, the growth of
memory outside PyTorch from one GPU to two for Llama-3-8B (vLLM pull request 10511, 2024-12-14)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Settings of the engine that decide how its memory is divided."""

    block_size: int = 16
    gpu_memory_utilization: float = 0.92
    """vLLM 0.23's default."""
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 128
    weight_dtype: str = "auto"
    """``auto``: as the model was released."""

    def __post_init__(self) -> None:
        weight_bits("bfloat16" if self.weight_dtype == "auto" else self.weight_dtype)
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ConfigError(
                f"gpu memory utilization {self.gpu_memory_utilization}: expected above 0, at most 1"
            )
        for name in ("block_size", "max_num_batched_tokens", "max_num_seqs"):
            if not 1 <= getattr(self, name) <= 10**7:
                raise ConfigError(
                    f"{name.replace('_', ' ')} {getattr(self, name)}: expected 1 to 10000000"
                )


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where the memory of one GPU goes; of the pipeline stage with the fewest blocks. Bytes."""

    layout: KVLayout
    gpu: Gpu
    limits: Limits
    weights: int
    activations: int
    graphs: int
    communication: int
    kv_pool: int

    @property
    def total(self) -> int:
        """Memory of the device."""
        return self.gpu.memory_bytes

    @property
    def budget(self) -> int:
        """What the engine may use."""
        return floor(self.gpu.memory_bytes * self.limits.gpu_memory_utilization)

    @property
    def unused(self) -> int:
        """What it must leave alone."""
        return self.total - self.budget

    @property
    def reserve(self) -> int:
        """Set aside for everything that is neither weights nor KV."""
        return self.activations + self.graphs + self.communication

    @property
    def block_bytes(self) -> int:
        """One block on this GPU."""
        return self.layout.block_bytes(self.limits.block_size)

    @property
    def num_gpu_blocks(self) -> int:
        """Blocks of the pool; every GPU has as many."""
        return self.kv_pool // self.block_bytes

    @property
    def kv_tokens_capacity(self) -> int:
        """Slots of the pool, one for each token (per-sequence constants take slots too)."""
        return self.num_gpu_blocks * self.limits.block_size

    @property
    def waterfall(self) -> dict[str, int]:
        """The memory of the GPU from top to bottom; the parts sum to it."""
        return {
            "left_to_others": self.unused,
            "weights": self.weights,
            "activations": self.activations,
            "graphs": self.graphs,
            "communication": self.communication,
            "kv_pool": self.kv_pool,
        }

    def max_concurrency(self, tokens: int) -> float:
        """Sequences of ``tokens`` tokens, in whole blocks, that the pool holds at once."""
        size = self.limits.block_size
        held = self.layout.gpu_bytes_per_sequence(ceil(tokens / size) * size)
        return self.num_gpu_blocks * self.block_bytes / held

    def summary(self, tokens: int) -> dict[str, object]:
        """Everything that was asked of it, flat, for sequences of ``tokens`` tokens."""
        layout = self.layout
        return {
            "model": layout.model.name,
            "gpu": self.gpu.name,
            "tensor_parallel_size": layout.tensor_parallel,
            "pipeline_parallel_size": layout.pipeline_parallel,
            "kv_cache_dtype": layout.dtype,
            "block_size": self.limits.block_size,
            "gpu_memory_utilization": self.limits.gpu_memory_utilization,
            "tokens": tokens,
            "kv_bytes_per_token": layout.bytes_per_token,
            "kv_bytes_per_token_short": layout.short_bytes_per_token,
            "index_bytes_per_token": layout.index_bytes_per_token,
            "fixed_bytes_per_sequence": layout.fixed_bytes_per_sequence,
            "kv_bytes_per_sequence": layout.bytes_per_sequence(tokens),
            "kv_bytes_per_token_per_gpu": layout.gpu_bytes_per_token,
            "block_bytes_per_gpu": self.block_bytes,
            "num_gpu_blocks": self.num_gpu_blocks,
            "kv_tokens_capacity": self.kv_tokens_capacity,
            "max_concurrency": self.max_concurrency(tokens),
            "memory_bytes_per_gpu": self.total,
            "waterfall_bytes_per_gpu": self.waterfall,
        }


DEFAULT_TOKENS = 8192
"""Length that is asked about when neither the user nor the model's config states one."""


def served_limits(gpu: Gpu) -> tuple[int, int]:
    """vLLM's default token budget and number of sequences for an API server on a GPU.

    Source: vLLM ``engine/arg_utils.py``, defaults by usage context: 16,384 tokens from 160 GiB of
    device memory, 8,192 from 70 GiB unless it is an A100, both with 1,024 sequences; else 2,048 and
    256.
    """
    if gpu.memory_bytes >= 160 * GIB:
        return 16_384, 1_024
    if gpu.memory_bytes >= 70 * GIB and "a100" not in gpu.name.lower():
        return 8_192, 1_024
    return 2_048, 256


def sequence_length(model: ModelSpec, tokens: int | None) -> int:
    """The length asked about: the model's longest context if none is given."""
    if tokens is None:
        return model.max_positions or DEFAULT_TOKENS
    if not 1 <= tokens <= 10**10:
        raise ConfigError(f"tokens {tokens}: expected 1 to {10**10}")
    return tokens


def plan_memory(layout: KVLayout, gpu: Gpu, limits: Limits | None = None) -> MemoryPlan:
    """Divide the GPU's memory; CapacityError, with the arithmetic, if no block of KV is left."""
    plan = divide(layout, gpu, limits or Limits())
    if plan.num_gpu_blocks < 1:
        raise CapacityError(explain(plan))
    return plan


def divide(layout: KVLayout, gpu: Gpu, limits: Limits) -> MemoryPlan:
    """The waterfall of the tightest stage; its pool may be negative."""
    budget = floor(gpu.memory_bytes * limits.gpu_memory_utilization)
    shards = layout.tensor_parallel
    stages = pipeline_stages(layout.model.layers, layout.pipeline_parallel)
    plans = []
    for number, layers in enumerate(stages):
        last = number == len(stages) - 1
        weights = stage_weights(
            layout.model, layers, limits.weight_dtype, shards, first=number == 0, last=last
        )
        activations = activation_bytes(layout.model, layers, limits, shards, last=last)
        graphs = GRAPH_BYTES * len(layers) + FIXED_BYTES
        communication = COMMUNICATION_BYTES if shards > 1 else 0
        pool = budget - weights - activations - graphs - communication
        plans.append(
            MemoryPlan(layout, gpu, limits, weights, activations, graphs, communication, pool)
        )
    return min(plans, key=lambda plan: plan.kv_pool)


def stage_weights(
    model: ModelSpec,
    layers: tuple[Layer, ...],
    weight_dtype: str,
    shards: int,
    *,
    first: bool,
    last: bool,
) -> int:
    """Bytes of weights on each GPU of a stage. Embedding, head and routers keep the model's dtype."""
    plain = weight_bits(model.dtype)
    linear, expert = map(weight_bits, model.stored_as(weight_dtype))
    bits = plain * model.embedding * (first + last - (first and last and model.tied))
    for layer in layers:
        bits += linear * layer.mixer_weights
        if layer.mlp is not None:
            bits += linear * (layer.mlp.dense + layer.mlp.shared) + plain * layer.mlp.router
            bits += expert * layer.mlp.experts * layer.mlp.expert
    return ceil(bits / 8 / shards)


def activation_bytes(
    model: ModelSpec, layers: tuple[Layer, ...], limits: Limits, shards: int, *, last: bool
) -> int:
    """Peak of the profiling run: a full batch through the widest MLP, or the sampler after it."""
    widest = max((layer.mlp.active for layer in layers if layer.mlp is not None), default=0)
    width = 2 * model.hidden + widest // model.hidden // shards
    forward = 2 * limits.max_num_batched_tokens * width
    sampler = SAMPLER_BYTES * limits.max_num_seqs * model.vocab if last else 0
    return max(forward, sampler)


def explain(plan: MemoryPlan) -> str:
    """Why it does not fit, in one line of arithmetic, and what would."""
    layout = plan.layout
    split = f"tensor parallel {layout.tensor_parallel}"
    if layout.pipeline_parallel > 1:
        split += f", pipeline parallel {layout.pipeline_parallel}"
    larger = smallest_fit(plan)
    advice = (
        f"the smallest tensor parallel size that fits is {larger}"
        if larger is not None
        else "no tensor parallel size fits"
    )
    return (
        f"{layout.model.name} does not fit on {plan.gpu.name} ({split}): per GPU "
        f"{gb(plan.weights)} of weights + {gb(plan.reserve)} of activations and graphs leave "
        f"{gb(plan.kv_pool)} of {plan.limits.gpu_memory_utilization:g} x {gb(plan.total)} = "
        f"{gb(plan.budget)} for a KV cache; {advice}"
    )


def smallest_fit(plan: MemoryPlan) -> int | None:
    """The smallest tensor parallel size, otherwise as planned, that leaves room for one block."""
    for shards in tensor_parallel_sizes(plan.layout.model):
        layout = KVLayout(
            plan.layout.model, plan.layout.dtype, shards, plan.layout.pipeline_parallel
        )
        if divide(layout, plan.gpu, plan.limits).num_gpu_blocks >= 1:
            return shards
    return None


def tensor_parallel_sizes(model: ModelSpec) -> Iterator[int]:
    """Powers of two that the model can be split into."""
    return (size for size in (2**power for power in range(11)) if not indivisible(model, size))


def gb(size: int) -> str:
    """Bytes in units of 10^9."""
    return f"{size / 1e9:.1f} GB"
