"""Configs that describe their layers in a way of their own."""

from __future__ import annotations

from kvsim.catalog import kinds, recurrence
from kvsim.catalog.attention import compressed, grouped
from kvsim.catalog.fields import Fields
from kvsim.catalog.mixers import grouped_attention, key_value_heads
from kvsim.catalog.mlps import dense_mlp, mixture, mlps
from kvsim.catalog.model import Attention, Layer, Mlp


def gemma4_layers(fields: Fields, layers: int) -> list[Layer]:
    """Gemma-4: full layers have their own head counts, and a dense MLP runs beside the experts."""
    if fields.maybe("num_kv_shared_layers", least=0):
        fields.fail("num_kv_shared_layers", "0 (layers that reuse the KV of others are not known)")
    mlp = dense_mlp(fields)
    if fields.flag("enable_moe_block", default=False):
        experts = mixture(fields)
        mlp = Mlp(mlp.dense, experts.experts, experts.top_k, experts.expert, 0, experts.router)
    full, local = Layer(gemma4_global(fields), None, mlp), Layer(None, None, mlp)
    sequence = kinds.stated(fields, layers)
    if "window" in sequence:
        local = Layer(grouped_attention(fields, "window"), None, mlp)
    return [local if kind == "window" else full for kind in sequence]


def gemma4_global(fields: Fields) -> Attention:
    """Full attention of Gemma-4; with ``attention_k_eq_v`` one vector is key and value."""
    heads = fields.count("num_attention_heads")
    shared = fields.flag("attention_k_eq_v", default=False)
    own = "num_global_key_value_heads" if shared else "num_key_value_heads"
    return grouped(
        "full",
        hidden=fields.count("hidden_size"),
        heads=heads,
        kv_heads=key_value_heads(fields, heads, own),
        head_dim=fields.count("global_head_dim"),
        shared_kv=shared,
    )


def deepseek_v4_layers(fields: Fields, layers: int) -> list[Layer]:
    """DeepSeek-V4: a compression ratio per layer, 0 for the window alone.

    ``compress_ratios`` may go on for the layers of multi-token prediction, which are left out.
    """
    ratios = fields.numbers("compress_ratios")
    if len(ratios) < layers or not {*ratios} <= {0, 4, 128}:
        fields.fail("compress_ratios", f"at least {layers} ratios among 0, 4 and 128")
    mixed = {ratio: compressed_attention(fields, ratio) for ratio in dict.fromkeys(ratios)}
    mlp = mlps(fields, 1)[0]
    made = {ratio: Layer(attention, None, mlp) for ratio, attention in mixed.items()}
    return [made[ratio] for ratio in ratios[:layers]]


def compressed_attention(fields: Fields, ratio: int) -> Attention:
    """Attention of one DeepSeek-V4 layer."""
    return compressed(
        hidden=fields.count("hidden_size"),
        heads=fields.count("num_attention_heads"),
        head_dim=fields.count("head_dim"),
        ratio=ratio,
        window=fields.count("sliding_window"),
        q_lora_rank=fields.count("q_lora_rank"),
        o_lora_rank=fields.count("o_lora_rank"),
        o_groups=fields.count("o_groups"),
        index_heads=fields.count("index_n_heads"),
        index_dim=fields.count("index_head_dim"),
        index_top_k=fields.count("index_topk"),
    )


def nemotron_h_layers(fields: Fields, layers: int) -> list[Layer]:
    """Nemotron-H: a letter per layer. M is Mamba-2, * attention, - an MLP, E a mixture of experts."""
    pattern = fields.text("hybrid_override_pattern")
    if pattern is None or len(pattern) != layers or not {*pattern} <= {*"M*-E"}:
        fields.fail("hybrid_override_pattern", f"{layers} letters among M, *, - and E")
    made: dict[str, Layer] = {}
    for letter in dict.fromkeys(pattern):
        made[letter] = nemotron_h_layer(fields, letter)
    return [made[letter] for letter in pattern]


def nemotron_h_layer(fields: Fields, letter: str) -> Layer:
    """The layer that one letter stands for; its MLPs are not gated."""
    if letter == "M":
        mixer = recurrence.mamba2(
            hidden=fields.count("hidden_size"),
            heads=fields.count("mamba_num_heads"),
            head_dim=fields.count("mamba_head_dim"),
            state=fields.count("ssm_state_size"),
            groups=fields.count("n_groups"),
            kernel=fields.count("conv_kernel"),
        )
        return Layer(recurrent=mixer)
    if letter == "*":
        return Layer(attention=grouped_attention(fields, "full"))
    return Layer(mlp=dense_mlp(fields, 2) if letter == "-" else mixture(fields, 2))


def nas_layers(fields: Fields, layers: int) -> list[Layer]:
    """Nemotron-NAS (Puzzle, arXiv:2411.19146): every block has its own attention and MLP, or none."""
    blocks = fields.items("block_configs", layers)
    made: dict[Layer, Layer] = {}
    sequence = []
    for number, block in enumerate(blocks):
        place = Fields(f"{fields.where}: block_configs[{number}]", {"block": block}).table("block")
        layer = nas_layer(fields, place)
        sequence.append(made.setdefault(layer, layer))
    return sequence


def nas_layer(fields: Fields, block: Fields) -> Layer:
    """One block."""
    hidden = fields.count("hidden_size")
    attention, linear = nas_attention(fields, block.table("attention"))
    ffn = block.table("ffn")
    width = 0
    if ffn.flag("replace_with_linear", default=False):
        linear += hidden * hidden
    elif not ffn.flag("no_op", default=False):
        width = -(-int(2 * ffn.ratio("ffn_mult") * hidden / 3) // 256) * 256
    dense = 3 * hidden * width + linear
    return Layer(attention, None, Mlp(dense=dense) if dense else None)


def nas_attention(fields: Fields, part: Fields) -> tuple[Attention | None, int]:
    """The block's attention, or the weights of the linear layer in its place."""
    hidden, heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    for unsupported in ("sparsify", "num_sink_tokens"):
        if part.get(unsupported) is not None:
            part.fail(unsupported, "null")
    if part.flag("replace_with_linear", default=False):
        return None, hidden * hidden
    if part.flag("no_op", default=False):
        return None, 0
    if hidden % heads:
        fields.fail("hidden_size", f"a multiple of num_attention_heads ({heads})")
    group = part.count("n_heads_in_group", most=heads)
    window = part.maybe("window_length")
    made = grouped(
        "window" if window else "full",
        hidden=hidden,
        heads=heads,
        kv_heads=heads // group,
        head_dim=hidden // heads,
        window=window,
    )
    return made, 0
