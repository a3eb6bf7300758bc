"""A decoder of a model's shape with random weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear

from kvsim.execution.memory import allocated
from kvsim.execution.operators import Operators
from kvsim.execution.shape import Shape

ROPE_BASE = 500_000.0


class Attend(Protocol):
    """Stores the new keys and values of a layer and attends to all that a sequence has."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Outputs of the queries, both ``[tokens, heads, dim]``."""
        ...


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """The weights of one layer, each ``[outputs, inputs]``; norms ``[hidden]``."""

    norm: Tensor
    qkv: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


class Decoder:
    """RMSNorm, rotary positions, grouped-query attention and SwiGLU: Llama's layer, as often as asked.

    Weights are normal with variance 1 / inputs, so that activations stay of order 1; they depend on
    the seed and the device alone. ``positions``: the longest sequence, tokens.
    """

    def __init__(
        self,
        shape: Shape,
        operators: Operators,
        *,
        positions: int,
        dtype: torch.dtype,
        device: str,
        seed: int,
    ) -> None:
        self.shape, self.dtype, self.device = shape, dtype, device
        self._operators = operators
        self.random = torch.Generator(device).manual_seed(seed)
        self.embedding = self._weights(shape.vocab, shape.hidden)
        self.head = self._weights(shape.vocab, shape.hidden)
        self.norm = torch.ones(shape.hidden, dtype=dtype, device=device)
        self.layers = [self._layer() for _ in range(shape.layers)]
        self.turns = rotary(positions, shape.head_dim).to(device, dtype)

    def _weights(self, outputs: int, inputs: int) -> Tensor:
        made = allocated((outputs, inputs), self.dtype, self.device)
        return made.normal_(0, inputs**-0.5, generator=self.random)

    def _layer(self) -> LayerWeights:
        shape = self.shape
        return LayerWeights(
            self.norm,
            self._weights(shape.projected, shape.hidden),
            self._weights(shape.hidden, shape.heads * shape.head_dim),
            self.norm,
            self._weights(2 * shape.inner, shape.hidden),
            self._weights(shape.hidden, shape.inner),
        )

    def outputs(
        self, tokens: Tensor, positions: Tensor, attend: Attend, rows: Tensor | None = None
    ) -> Tensor:
        """What the output head sees of the tokens in ``rows`` (of all): ``[rows, hidden]``."""
        ops, shape = self._operators, self.shape
        x = ops.embed(self.embedding, tokens)
        residual = torch.zeros_like(x)
        for index, layer in enumerate(self.layers):
            x = ops.add_norm(x, residual, layer.norm)
            heads = linear(x, layer.qkv).view(len(x), -1, shape.head_dim)
            ops.rotate(heads[:, : shape.heads + shape.kv_heads], self.turns, positions)
            q, k, v = heads.split([shape.heads, shape.kv_heads, shape.kv_heads], 1)
            x = linear(attend(index, q, k, v).reshape(len(x), -1), layer.out)
            x = ops.add_norm(x, residual, layer.mlp_norm)
            x = linear(ops.gate(linear(x, layer.gate_up)), layer.down)
        if rows is not None:
            x, residual = x[rows], residual[rows]
        return ops.add_norm(x, residual, self.norm)

    def sample(self, outputs: Tensor) -> Tensor:
        """A token drawn from the distribution of each row, by the exponential trick."""
        shares = linear(outputs, self.head).float().softmax(-1)
        noise = torch.empty_like(shares).exponential_(generator=self.random)
        return shares.div_(noise).argmax(-1)


def rotary(positions: int, dim: int) -> Tensor:
    """Cosines, then sines, of each position's angles, ``[positions, dim]``."""
    rates = ROPE_BASE ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * rates
    return torch.cat([angles.cos(), angles.sin()], -1)
