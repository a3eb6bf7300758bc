"""Which layers of a hybrid model share a block table, and the one size of page that all of them use.

The rules are vLLM's: layers that keep the same for a token are of one kind; kinds are cut into groups
of equal numbers of layers, the last ones padded; a page has a part for each layer of a group. Source:
vLLM 0.23.0 ``v1/core/kv_cache_utils.py``, and ``model_executor/models/config.py`` for the block size of
models with recurrent layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import ceil
from typing import Literal, NamedTuple

from kvsim.catalog.model import Layer
from kvsim.errors import ConfigError
from kvsim.layout import KVLayout, pipeline_stages, rows, state_size
from kvsim.memory.layer_groups import Chunked, Full, PagePlan, State, Window


class Keeps(NamedTuple):
    """What a layer keeps of a sequence."""

    kind: Literal["full", "window", "chunked", "state"]
    reach: int
    """Tokens of the window or chunk; 0 without."""
    size: Fraction
    """Bytes of a token on a GPU, or of the whole state."""


class LayerPage(NamedTuple):
    """A layer's part of a page."""

    size: Fraction
    """Bytes."""
    tokens: int
    """In the blocks of the layers that keep most of a token, and in those of states."""


def page_plan(layout: KVLayout, block_size: int) -> PagePlan:
    """The groups of a model and their pages; ConfigError if no size of page suits all layers.

    Blocks have ``block_size`` tokens, or the next multiple at which a page holds a recurrent state.
    """
    kinds = layers_by_kind(layout)
    if not kinds:
        raise ConfigError(f"allocator hybrid: {layout.model.name} has no layer that keeps anything")
    size = group_size([len(layers) for layers in kinds.values()])
    page = layer_page(kinds, block_size)
    groups: list[Full] = []
    most = 0
    for keeps, layers in kinds.items():
        count = ceil(len(layers) / size)
        block = tokens_in_page(layout, keeps, page, block_size)
        for number in range(count):
            members = layers[number::count]
            most = max(most, most_in_a_stage(layout, members))
            groups.append(group_of(keeps, block, len(members)))
    return PagePlan(tuple(groups), ceil(page.size) * most)


def layers_by_kind(layout: KVLayout) -> dict[Keeps, list[int]]:
    """Numbers of the layers that keep the same, by what they keep."""
    kinds: dict[Keeps, list[int]] = {}
    for number, layer in enumerate(layout.model.layers):
        for keeps in kept_by(layer, layout):
            kinds.setdefault(keeps, []).append(number)
    return kinds


def kept_by(layer: Layer, layout: KVLayout) -> Iterator[Keeps]:
    """What a layer keeps: one entry for each reach of its streams, and one for a state."""
    shards, sizes = layout.tensor_parallel, dict[int | None, Fraction]()
    for window, _, size in rows(layer, layout.format, shards):
        sizes[window] = sizes.get(window, Fraction(0)) + size
    for window, size in sizes.items():
        local = layer.attention is not None and layer.attention.kind == "chunked"
        reaching: Literal["window", "chunked"] = "chunked" if local else "window"
        yield Keeps("full", 0, size) if window is None else Keeps(reaching, window, size)
    if layer.recurrent is not None:
        state = state_size(layer.recurrent, layout.state_bytes, shards)
        yield Keeps("state", 0, Fraction(state))


def group_size(counts: list[int]) -> int:
    """Layers in a group: of the rarest kind, or of the commonest if that has less than half more."""
    least, most = min(counts), max(counts)
    return most if most < 1.5 * least else least


def layer_page(kinds: Mapping[Keeps, list[int]], block_size: int) -> LayerPage:
    """The largest block of a layer, which must hold a state, too."""
    states = [keeps.size for keeps in kinds if keeps.kind == "state"]
    tokens = [keeps.size for keeps in kinds if keeps.kind != "state"]
    if not tokens:
        return LayerPage(max(states), block_size)
    blocks = ceil(max(states, default=0) / (max(tokens) * block_size))
    block = max(1, blocks) * block_size
    return LayerPage(max(tokens) * block, block)


def tokens_in_page(layout: KVLayout, keeps: Keeps, page: LayerPage, block_size: int) -> int:
    """Tokens of a layer's block, so that it fills its part of a page; states have their own."""
    if keeps.kind == "state":
        return page.tokens
    tokens = page.size / keeps.size
    if tokens.denominator != 1 or int(tokens) % block_size:
        raise ConfigError(
            f"allocator hybrid: pages of {layout.model.name} have {ceil(page.size)} bytes a layer, "
            f"which its layers of {float(keeps.size):g} bytes a token do not divide into blocks of a "
            f"multiple of {block_size} tokens; accepted: --allocator paged"
        )
    return int(tokens)


def most_in_a_stage(layout: KVLayout, members: list[int]) -> int:
    """Layers of a group on the pipeline stage that has most of them."""
    most = start = 0
    for stage in pipeline_stages(layout.model.layers, layout.pipeline_parallel):
        most = max(most, sum(start <= number < start + len(stage) for number in members))
        start += len(stage)
    return most


def group_of(keeps: Keeps, block: int, layers: int) -> Full:
    """A group of so many layers."""
    kind, reach, size = keeps
    if kind == "state":
        return State(block, layers, ceil(size))
    shape = (block, layers, ceil(size * block))
    if kind == "full":
        return Full(*shape)
    return Window(*shape, reach) if kind == "window" else Chunked(*shape, reach)
