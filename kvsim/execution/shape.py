"""Which models can be executed: dense decoders of full attention, by their dimensions."""

from __future__ import annotations

from dataclasses import dataclass

from kvsim.catalog.model import Attention, Layer, ModelSpec
from kvsim.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a decoder whose layers are all alike."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    """Width of the gated MLP."""
    vocab: int

    @property
    def projected(self) -> int:
        """Outputs of the product for queries, keys and values."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def parameters(self) -> int:
        """Weights of all products, and the embedding."""
        layer = self.projected + self.heads * self.head_dim + 3 * self.inner
        return self.hidden * (2 * self.vocab + self.layers * layer)


def shape_of(model: ModelSpec) -> Shape:
    """The sizes of a catalog model; ConfigError if its layers are of a kind that is not executed."""
    (layer, *others) = model.groups
    attention, mlp = layer.attention, layer.mlp
    if others:
        raise refused(model, f"{1 + len(others)} kinds of layers")
    if attention is None or layer.recurrent is not None or attention.kind != "full":
        raise refused(model, described(layer))
    if mlp is None or mlp.experts or mlp.dense % (3 * model.hidden):
        raise refused(model, "layers without a dense gated MLP")
    if attention.weights != plain_weights(attention, model.hidden):
        raise refused(model, "values of another width than keys, or gated attention")
    if attention.head_dim < 16 or attention.head_dim.bit_count() > 1:
        raise refused(
            model, f"heads of {attention.head_dim} dimensions, no power of two from 16 on"
        )
    inner = mlp.dense // (3 * model.hidden)
    heads = (attention.heads, attention.kv_heads, attention.head_dim)
    return Shape(len(model.layers), model.hidden, *heads, inner, model.vocab)


def plain_weights(attention: Attention, hidden: int) -> int:
    """Parameters of four plain projections."""
    return 2 * hidden * attention.head_dim * (attention.heads + attention.kv_heads)


def described(layer: Layer) -> str:
    """What a layer mixes tokens with."""
    mixers = [part.kind for part in (layer.attention, layer.recurrent) if part is not None]
    return f"layers of {' and '.join(mixers) or 'no'} attention"


def refused(model: ModelSpec, seen: str) -> ConfigError:
    """An error that says what is accepted."""
    return ConfigError(
        f"{model.name} has {seen}; an executor accepts decoders whose layers are all alike, "
        "of full attention in heads of 2^n dimensions and a dense gated MLP, such as llama-3-8b"
    )
