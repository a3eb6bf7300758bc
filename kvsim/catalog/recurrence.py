"""Recurrent layers by their dimensions: the state that one sequence keeps, and the weights.

The state is what an engine stores between two tokens: the recurrent matrix and, where the layer has
a short convolution, the last ``kernel - 1`` inputs of it.
"""

from __future__ import annotations

from kvsim.catalog.model import Recurrent


def mamba1(*, hidden: int, inner: int, state: int, kernel: int, dt_rank: int) -> Recurrent:
    """Selective state space (Mamba, arXiv:2312.00752): ``state`` numbers per inner channel."""
    weights = 3 * hidden * inner + inner * (dt_rank + 2 * state) + dt_rank * inner
    weights += inner * (kernel + state + 1)
    return Recurrent("mamba1", inner, inner * state, inner * (kernel - 1), weights)


def mamba2(
    *, hidden: int, heads: int, head_dim: int, state: int, groups: int, kernel: int
) -> Recurrent:
    """State-space duality (Mamba-2, arXiv:2405.21060): a head_dim x state matrix per head."""
    inner, mixed = heads * head_dim, 2 * groups * state
    channels = inner + mixed
    weights = hidden * (2 * inner + mixed + heads) + inner * hidden + channels * kernel
    return Recurrent("mamba2", heads, inner * state, channels * (kernel - 1), weights)


def gated_delta_net(
    *, hidden: int, key_heads: int, value_heads: int, key_dim: int, value_dim: int, kernel: int
) -> Recurrent:
    """Gated delta rule (arXiv:2412.06464): a key_dim x value_dim matrix per value head."""
    keys, values = key_heads * key_dim, value_heads * value_dim
    channels = 2 * keys + values
    weights = hidden * (channels + values + 2 * value_heads) + values * hidden + channels * kernel
    return Recurrent(
        "gated_delta_net",
        value_heads,
        value_heads * key_dim * value_dim,
        channels * (kernel - 1),
        weights,
    )


def kda(*, hidden: int, heads: int, head_dim: int, kernel: int) -> Recurrent:
    """Kimi delta attention (arXiv:2510.26692): a head_dim x head_dim matrix per head.

    Weights count queries, keys, values, output, and a full-rank decay and output gate.
    """
    width = heads * head_dim
    weights = 6 * hidden * width + hidden * heads + 3 * width * kernel
    return Recurrent("kda", heads, heads * head_dim**2, 3 * width * (kernel - 1), weights)


def lightning(*, hidden: int, heads: int, head_dim: int) -> Recurrent:
    """Lightning attention (arXiv:2401.04658): linear attention without a convolution."""
    return Recurrent("lightning", heads, heads * head_dim**2, 0, 5 * hidden * heads * head_dim)
