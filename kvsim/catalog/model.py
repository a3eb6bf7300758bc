"""What a model is, as far as its memory and its step times depend on it.

A model is a sequence of layers; equal layers are the same object. A layer mixes tokens (attention,
a recurrence, or both side by side) and then applies an MLP. Attention is described by its *streams*:
the rows that it keeps for the tokens of a sequence and reads again in every step. Sizes, shards and
read traffic of MHA, GQA, MQA, MLA, sliding windows, chunked, sparse and compressed attention all
follow from the streams, so no other module asks which kind of attention it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kvsim.errors import ConfigError

AttentionKind = Literal["full", "window", "chunked", "latent", "compressed"]
RecurrentKind = Literal["mamba1", "mamba2", "gated_delta_net", "kda", "lightning"]
Role = Literal["k", "v", "kv", "index"]

WEIGHT_BITS = {
    "float32": 32.0,
    "bfloat16": 16.0,
    "float16": 16.0,
    "fp8": 8.0,
    "int8": 8.0,
    "int4": 4.5,
    "nvfp4": 4.5,
    "mxfp4": 4.25,
}
"""Bits that a weight takes, scales included: int4 with a 16-bit scale per 32 values, nvfp4 with an
8-bit scale per 16, mxfp4 with an 8-bit scale per 32 (OCP MX 1.0); scales of fp8 blocks are below
0.1 % and left out."""


class Stream(NamedTuple):
    """Rows of the KV cache that one layer keeps, and what it costs to attend to them."""

    role: Role
    """Keys, values, one vector that serves as both, or keys of a sparse-attention indexer."""
    heads: int
    dim: int
    decode_flops: int
    """FLOPs of one decoding query per row, all query heads together."""
    prefill_flops: int
    stride: int = 1
    """Tokens that one row stands for (compressed attention)."""
    window: int | None = None
    """Only rows of the last ``window`` tokens are kept."""
    reach: int | None = None
    """A query reads at most ``reach`` tokens, though all are kept (sparse attention)."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention of one layer."""

    kind: AttentionKind
    heads: int
    kv_heads: int
    head_dim: int
    """Dimension of keys; values may differ (see the streams)."""
    streams: tuple[Stream, ...]
    weights: int
    """Parameters of the projections."""


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A layer whose memory does not grow: state-space or linear attention."""

    kind: RecurrentKind
    heads: int
    state: int
    """Elements of the recurrent state of one sequence."""
    conv: int
    """Elements of the convolution's history: channels * (kernel - 1)."""
    weights: int


@dataclass(frozen=True, slots=True)
class Mlp:
    """The feed-forward part of one layer, in parameters. ``experts == 0``: it is dense."""

    dense: int = 0
    """Used by every token and no expert: a dense MLP."""
    experts: int = 0
    top_k: int = 0
    expert: int = 0
    """Parameters of one routed expert."""
    shared: int = 0
    """Experts that serve every token."""
    router: int = 0

    @property
    def weights(self) -> int:
        """All parameters."""
        return self.dense + self.experts * self.expert + self.shared + self.router

    @property
    def active(self) -> int:
        """Parameters that one token uses."""
        return self.dense + self.top_k * self.expert + self.shared + self.router


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer; hybrid models may attend and recur in the same layer."""

    attention: Attention | None = None
    recurrent: Recurrent | None = None
    mlp: Mlp | None = None

    @property
    def mixer_weights(self) -> int:
        """Parameters of the attention and the recurrence."""
        mixers = (self.attention, self.recurrent)
        return sum(mixer.weights for mixer in mixers if mixer is not None)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model's dimensions. Parameters exclude norms, biases and multi-token-prediction layers."""

    name: str
    family: str
    """``model_type`` of the Hugging Face config."""
    layers: tuple[Layer, ...]
    hidden: int
    vocab: int
    dtype: str
    """Data type of the computation and of unquantised weights."""
    max_positions: int | None
    tied: bool
    """The output head shares the embedding's weights."""
    linear_dtype: str
    """Weights of attention, dense MLPs and shared experts as released."""
    expert_dtype: str
    """Weights of routed experts as released."""
    source: str = ""
    date: str = ""
    verified: bool = False
    """The dimensions were read from the model's own config.json."""

    @property
    def embedding(self) -> int:
        """Parameters of the input embedding."""
        return self.vocab * self.hidden

    @property
    def head(self) -> int:
        """Parameters of the output head; read once a step even if tied."""
        return self.vocab * self.hidden

    @property
    def mixtures(self) -> list[Mlp]:
        """The mixture of experts of every layer that has one."""
        return [layer.mlp for layer in self.layers if layer.mlp is not None and layer.mlp.experts]

    @property
    def parameters(self) -> int:
        """All parameters."""
        ends = self.embedding if self.tied else self.embedding + self.head
        return ends + sum(
            layer.mixer_weights + (layer.mlp.weights if layer.mlp else 0) for layer in self.layers
        )

    def stored_as(self, weight_dtype: str) -> tuple[str, str]:
        """Types of the linear layers' weights and of the experts'; ``auto``: as released."""
        if weight_dtype == "auto":
            return self.linear_dtype, self.expert_dtype
        return weight_dtype, weight_dtype

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses, embeddings included."""
        ends = self.embedding if self.tied else self.embedding + self.head
        return ends + sum(
            layer.mixer_weights + (layer.mlp.active if layer.mlp else 0) for layer in self.layers
        )

    @property
    def groups(self) -> dict[Layer, int]:
        """Distinct layers with their number, in order of first appearance."""
        return distinct(self.layers)

    @property
    def heads(self) -> int:
        """Query heads of the widest attention; 0 without attention."""
        return max((layer.attention.heads for layer in self.layers if layer.attention), default=0)

    @property
    def kv_heads(self) -> int:
        """KV heads of the widest attention; 0 without attention."""
        return max(
            (layer.attention.kv_heads for layer in self.layers if layer.attention), default=0
        )


def distinct(layers: Iterable[Layer]) -> dict[Layer, int]:
    """Distinct layers with their number, in order of first appearance."""
    counts: dict[Layer, int] = {}
    for layer in layers:
        counts[layer] = counts.get(layer, 0) + 1
    return counts


def weight_bits(dtype: str) -> float:
    """Bits per weight of a dtype, or a ConfigError that lists the known ones."""
    if dtype not in WEIGHT_BITS:
        raise ConfigError(
            f"unknown weight dtype {dtype!r}; accepted: auto, {', '.join(WEIGHT_BITS)}"
        )
    return WEIGHT_BITS[dtype]
