"""Exact bytes of the KV cache: per token, per sequence and per block, of a model and of one GPU.

Three figures describe a sequence of n tokens: what grows with every token, what sliding windows add
until they are full, and the constant state of recurrent layers::

    bytes(n) = growth * n + sum over windows w of min(n, w) * bytes_w + state
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from kvsim.catalog.formats import KVFormat, kv_format, stream_bytes
from kvsim.catalog.model import Layer, ModelSpec, Recurrent, distinct
from kvsim.errors import ConfigError

STATE_BYTES = {"bf16": 2, "fp32": 4}
"""Bytes of an element of a recurrent state."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """What some layers keep, in bytes; fractions where one row stands for several tokens."""

    growth: Fraction
    """Per token, without limit."""
    windows: tuple[tuple[int, Fraction], ...]
    """Window in tokens, and bytes per token while it fills."""
    index: Fraction
    """Per token: keys of a sparse-attention indexer, kept beside the KV cache proper."""
    state: int
    """Per sequence: recurrent state."""

    @property
    def short(self) -> Fraction:
        """Per token of a sequence shorter than every window."""
        return self.growth + sum(size for _, size in self.windows)

    def window_bytes(self, tokens: int | None = None) -> Fraction:
        """What the windows hold of a sequence of ``tokens`` tokens; all they can without it."""
        held = ((w if tokens is None else min(w, tokens), size) for w, size in self.windows)
        return sum((count * size for count, size in held), Fraction(0))

    def sequence(self, tokens: int) -> Fraction:
        """A sequence of ``tokens`` tokens, indexer included."""
        return (self.growth + self.index) * tokens + self.window_bytes(tokens) + self.state


class KVLayout:
    """How the KV cache of a model is laid out for a dtype and a parallel placement.

    ``dtype`` is a name of :mod:`kvsim.catalog.formats` (which says what scales each includes),
    ``auto`` or ``k:NAME,v:NAME``. Tensor parallelism shards KV heads and recurrent heads; with more
    GPUs than KV heads each head is replicated, and a latent (MLA) is on every GPU. Pipeline
    parallelism splits the layers as vLLM does; figures per GPU (``gpu_...``) are those of the stage
    that needs most. The recurrent matrix is kept in ``state_dtype``, a convolution's history in bf16.
    """

    def __init__(
        self,
        model: ModelSpec,
        dtype: str = "auto",
        tensor_parallel: int = 1,
        pipeline_parallel: int = 1,
        *,
        state_dtype: str = "bf16",
    ) -> None:
        if state_dtype not in STATE_BYTES:
            raise ConfigError(f"state dtype {state_dtype!r}: expected {' or '.join(STATE_BYTES)}")
        check_parallel(model, tensor_parallel, pipeline_parallel)
        self.model = model
        self.format = kv_format(dtype, model.dtype)
        self.dtype = self.format.name
        self.tensor_parallel = tensor_parallel
        self.pipeline_parallel = pipeline_parallel
        self.state_bytes = STATE_BYTES[state_dtype]
        self._made_of = (model, self.dtype, tensor_parallel, pipeline_parallel, state_dtype)
        self.whole = self._footprint(model.layers, shards=1)
        self.stages = tuple(
            self._footprint(stage, shards=tensor_parallel)
            for stage in pipeline_stages(model.layers, pipeline_parallel)
        )
        self.bytes_per_token = ceil(self.whole.growth)
        """Of the whole model, nothing replicated: one more token once every window is full. 0 for
        a model whose layers all have windows. Without the keys of a sparse-attention indexer."""
        self.short_bytes_per_token = ceil(self.whole.short)
        """The same while no window is full."""
        self.index_bytes_per_token = ceil(self.whole.index)
        """Keys of a sparse-attention indexer (DeepSeek-V3.2), kept beside the KV cache."""
        self.window_bytes_per_sequence = ceil(self.whole.window_bytes())
        self.fixed_bytes_per_sequence = self.window_bytes_per_sequence + self.whole.state
        """Full windows and recurrent state."""
        self.slot = max(stage.growth + stage.index for stage in self.stages) or max(
            stage.short for stage in self.stages
        )
        self.slot_bytes = ceil(self.slot) or 1
        """What one token's slot of the pool takes on a GPU: bytes that grow, or for a model in which
        nothing grows those of a short sequence (contexts beyond the window are then overcounted)."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KVLayout) and self._made_of == other._made_of

    def __hash__(self) -> int:
        return hash(self._made_of)

    def bytes_per_sequence(self, tokens: int) -> int:
        """KV of a sequence of ``tokens`` tokens in the whole model, without the indexer's keys."""
        return ceil(self.whole.sequence(tokens) - self.whole.index * tokens)

    def gpu_bytes_per_sequence(self, tokens: int) -> int:
        """What a sequence of ``tokens`` tokens takes on the GPU that holds most of it."""
        return ceil(max(stage.sequence(tokens) for stage in self.stages))

    @property
    def gpu_bytes_per_token(self) -> int:
        """One more token, windows full, on the GPU that holds most of it; indexer included."""
        return ceil(max(stage.growth + stage.index for stage in self.stages))

    def block_bytes(self, block_size: int) -> int:
        """A block of ``block_size`` slots on a GPU, all layers of its stage together."""
        return ceil(self.slot * block_size) or block_size

    def fixed_slots(self, tokens: int | None = None) -> int:
        """What does not grow, expressed in slots and rounded up: a constant charge per sequence.

        With ``tokens``, windows are charged only as far as such a sequence fills them. When nothing
        grows, the windows are what the slots count, and only the state is charged.
        """
        grows = any(stage.growth for stage in self.stages)
        fixed = (
            (stage.window_bytes(tokens) if grows else Fraction(0)) + stage.state
            for stage in self.stages
        )
        return ceil(max(fixed) / (self.slot or 1))

    def _footprint(self, layers: Iterable[Layer], shards: int) -> Footprint:
        growth, index, state = Fraction(0), Fraction(0), 0
        windows: dict[int, Fraction] = {}
        for layer, count in distinct(layers).items():
            for window, beside, size in rows(layer, self.format, shards):
                if window is not None:
                    windows[window] = windows.get(window, Fraction(0)) + count * size
                elif beside:
                    index += count * size
                else:
                    growth += count * size
            if layer.recurrent is not None:
                state += count * state_size(layer.recurrent, self.state_bytes, shards)
        return Footprint(growth, tuple(sorted(windows.items())), index, state)


def rows(layer: Layer, kv: KVFormat, shards: int) -> Iterable[tuple[int | None, bool, Fraction]]:
    """Each stream of a layer: its window, whether it lies beside the cache, and bytes per token."""
    attention = layer.attention
    if attention is None:
        return
    for stream in attention.streams:
        heads = max(1, stream.heads // shards)
        size = Fraction(stream_bytes(kv, attention, stream, heads), stream.stride)
        yield stream.window, stream.role == "index" and attention.kind == "latent", size


def state_size(recurrent: Recurrent, state_bytes: int, shards: int) -> int:
    """Bytes of one sequence's state in one layer on one GPU; the convolution's history is bf16."""
    return -(-recurrent.state // shards) * state_bytes + -(-recurrent.conv // shards) * 2


def pipeline_stages(layers: tuple[Layer, ...], stages: int) -> list[tuple[Layer, ...]]:
    """Layers of each pipeline stage: equal numbers, and one more from the last but one backwards,
    since the last stage also has the output head (vLLM ``get_pp_indices``)."""
    sizes = [len(layers) // stages] * stages
    for extra in range(len(layers) % stages):
        sizes[-2 - extra] += 1
    starts = [sum(sizes[:stage]) for stage in range(stages)]
    return [layers[start : start + size] for start, size in zip(starts, sizes, strict=True)]


def check_parallel(model: ModelSpec, tensor_parallel: int, pipeline_parallel: int) -> None:
    """Raise a ConfigError if the model cannot be split that way."""
    if not 1 <= tensor_parallel <= 1024:
        raise ConfigError(f"tensor parallel size {tensor_parallel}: expected 1 to 1024")
    if not 1 <= pipeline_parallel <= len(model.layers):
        raise ConfigError(
            f"pipeline parallel size {pipeline_parallel}: expected 1 to {len(model.layers)}, "
            f"the layers of {model.name}"
        )
    reason = indivisible(model, tensor_parallel)
    if reason:
        raise ConfigError(f"tensor parallel size {tensor_parallel}: {reason} of {model.name}")


def indivisible(model: ModelSpec, shards: int) -> str | None:
    """What of the model cannot be split into ``shards``; None if all can."""
    for layer in model.groups:
        attention, recurrent = layer.attention, layer.recurrent
        if attention is not None and attention.heads % shards:
            return f"does not divide the {attention.heads} query heads"
        if attention is not None and attention.kv_heads % shards and shards % attention.kv_heads:
            return f"neither divides nor is a multiple of the {attention.kv_heads} KV heads"
        if recurrent is not None and recurrent.heads % shards:
            return f"does not divide the {recurrent.heads} heads of the {recurrent.kind} layers"
    return None
