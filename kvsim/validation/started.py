"""What the arguments of a recorded vLLM say of its engine, whoever recorded it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvsim.catalog import load_model
from kvsim.catalog.models import entries
from kvsim.errors import TraceError
from kvsim.layout import KVLayout
from kvsim.validation.arguments import Arguments

ENGINE = "vllm-0.23"
"""The release that recorded engines are taken for."""
SHAPES = {
    "dsv2lite": "deepseek-v2-lite",
    "Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b",
}
"""Names of recorded models that resemble none of the catalog, and whose shape they have."""
FIXED: dict[str, tuple[object, ...]] = {
    "async_scheduling": (True,),
    "enable_chunked_prefill": (True,),
    "scheduling_policy": ("fcfs",),
    "pipeline_parallel_size": (1,),
    "decode_context_parallel_size": (1,),
    "dtype": ("auto", "bfloat16", "float16", "half"),
    "quantization": ("fp8",),
    "kv_offloading_backend": ("native",),
    "cpu_offload_gb": (0,),
    "speculative_config": (),
    "enable_lora": (False,),
}
"""Arguments that make another engine of it, and the values that do not."""
RANDOM_EXPERTS = 0.24
"""Experts that a model with random weights reaches more with each doubling of a batch's tokens, as a
share of those of one token: most tokens choose the same. From decodes of DeepSeek-V2-Lite's bursts."""
GIB = 2**30


def layout_of(arguments: Arguments) -> KVLayout:
    """Where the engine keeps KV."""
    return KVLayout(
        load_model(shape_of(arguments.text("model"))),
        arguments.text("kv_cache_dtype", "auto"),
        arguments.whole("tensor_parallel_size", 1),
    )


def options_of(
    arguments: Arguments, graphs: Iterable[Arguments], *, caching: bool = True
) -> dict[str, Any]:
    """Fields of the Setup that arguments choose; TraceError for an engine that kvsim is not.

    ``graphs`` may list the sizes of CUDA graphs, the first that does is right. ``caching``: whether
    prefixes are cached where the arguments do not say.
    """
    for name, accepted in FIXED.items():
        arguments.only(name, *accepted)
    step: dict[str, Any] = {"weight_dtype": arguments.text("quantization", "auto")}
    if arguments.text("load_format") == "dummy":
        step["expert_growth"] = RANDOM_EXPERTS
    listed = [given.sizes("cudagraph_capture_sizes") for given in graphs]
    sizes = next((sizes for sizes in listed if sizes is not None), None)
    offloading = round(arguments.amount("kv_offloading_size", 0) * GIB)
    caching = arguments.flag("enable_prefix_caching", default=caching)
    if offloading and not caching:
        raise TraceError(
            f"{arguments.where}.enable_prefix_caching is False with a kv_offloading_size; "
            "accepted: True, or no kv_offloading_size"
        )
    return {
        "longest_chunk": arguments.whole("long_prefill_token_threshold", 0, least=0),
        "offloading": offloading,
        "prefix_caching": caching,
        "captured": () if arguments.flag("enforce_eager", default=False) else sizes,
        "step": step,
    }


def shape_of(model: str) -> str:
    """The catalog's name of a model whose folder may spell it without punctuation."""
    folder = model.rstrip("/").rpartition("/")[2]
    alike = [name for name in entries() if plain(name) == plain(folder)]
    return SHAPES.get(folder) or (alike[0] if alike else folder)


def plain(name: str) -> str:
    """Letters and digits alone."""
    return "".join(filter(str.isalnum, name.lower()))
