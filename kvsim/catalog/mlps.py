"""The feed-forward parts in a Hugging Face config: dense, or a mixture of experts in its spellings."""

from __future__ import annotations

from kvsim.catalog.fields import Fields
from kvsim.catalog.model import Mlp

EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
TOP_K = (
    "num_experts_per_tok",
    "experts_per_token",
    "num_experts_per_token",
    "top_k_experts",
    "moe_k",
)
SHARED_WIDTH = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_intermediate_size",
)


def mlps(fields: Fields, layers: int, *, matrices: int = 3, dense_width: str = "") -> list[Mlp]:
    """One MLP per layer. ``matrices``: 3 for gated MLPs, 2 for plain ones."""
    routed = routed_layers(fields, layers)
    expert = mixture(fields, matrices) if any(routed) else None
    dense = None if all(routed) else dense_mlp(fields, matrices, dense_width)
    chosen = [expert if is_routed else dense for is_routed in routed]
    return [mlp for mlp in chosen if mlp is not None]


def dense_mlp(fields: Fields, matrices: int = 3, width: str = "") -> Mlp:
    """A dense MLP of ``intermediate_size`` (or of the field named)."""
    names = (width, "intermediate_size") if width else ("intermediate_size",)
    return Mlp(dense=matrices * fields.count("hidden_size") * fields.count(*names))


def mixture(fields: Fields, matrices: int = 3) -> Mlp:
    """A mixture of experts; experts may work in a narrower space (``routed_expert_hidden_size``)."""
    hidden, experts = fields.count("hidden_size"), fields.count(*EXPERTS)
    width = fields.count("moe_intermediate_size", "intermediate_size")
    inner = fields.maybe("routed_expert_hidden_size") or hidden
    narrowing = 0 if inner == hidden else 2 * hidden * inner
    return Mlp(
        experts=experts,
        top_k=fields.count(*TOP_K, most=experts),
        expert=matrices * inner * width,
        shared=matrices * hidden * shared_width(fields, width) + narrowing,
        router=hidden * experts,
    )


def shared_width(fields: Fields, width: int) -> int:
    """Intermediate size of all shared experts together."""
    stated = fields.maybe(*SHARED_WIDTH, least=0)
    if stated is not None:
        return stated
    if fields.text("model_type") == "llama4_text":
        return width
    return width * (fields.maybe("n_shared_experts", "num_shared_experts", least=0) or 0)


def routed_layers(fields: Fields, layers: int) -> list[bool]:
    """Which layers are mixtures of experts."""
    if not fields.maybe(*EXPERTS, least=0):
        return [False] * layers
    if isinstance(fields.get("moe_layer_freq"), list):
        return [bool(x) for x in fields.numbers("moe_layer_freq", length=layers, most=1)]
    first = fields.maybe("first_k_dense_replace", least=0) or 0
    dense = {*range(first)}
    if fields.get("mlp_only_layers") is not None:
        dense.update(fields.numbers("mlp_only_layers", most=layers - 1))
    step, offset = period(fields)
    return [layer not in dense and (layer - offset) % step == 0 for layer in range(layers)]


def period(fields: Fields) -> tuple[int, int]:
    """Every how many layers a mixture comes, and the first such layer."""
    if fields.get("expert_layer_period") is not None:
        return fields.count("expert_layer_period"), fields.count("expert_layer_offset", least=0)
    every = fields.maybe("decoder_sparse_step", "interleave_moe_layer_step")
    if every is not None:
        return every, every - 1
    return fields.maybe("moe_layer_freq") or 1, 0
