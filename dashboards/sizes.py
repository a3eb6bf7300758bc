"""How a model's KV cache fits on a GPU, for every way to split and store it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from kvsim.catalog import Gpu, ModelSpec
from kvsim.catalog.huggingface import LARGEST_FILE, model_from
from kvsim.errors import ConfigError, KvsimError
from kvsim.layout import KVLayout
from kvsim.sizing import Limits, MemoryPlan, plan_memory, served_limits, tensor_parallel_sizes

MOST_GPUS = 16
POINTS = 60
DTYPES = ("auto", "fp8", "int8", "int4", "nvfp4")


class Placed(NamedTuple):
    """A model on a number of GPUs."""

    tensor_parallel: int
    plan: MemoryPlan | None
    refusal: str | None
    """Why it does not fit."""


def model_of_text(text: str) -> ModelSpec:
    """The model that the text of a config.json describes."""
    if len(text) > LARGEST_FILE:
        raise ConfigError(f"config.json: more than {LARGEST_FILE:,} characters")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"config.json: not valid JSON: {error}") from None
    if not isinstance(config, dict):
        raise ConfigError(f"config.json: expected an object, found {type(config).__name__}")
    name = config.get("_name_or_path")
    return model_from(config, where="config.json", name=str(name or "config.json"))


def limits_for(gpu: Gpu, utilization: float, block_size: int) -> Limits:
    """The limits that ``vllm serve`` takes on a GPU, as far as memory is concerned."""
    tokens, sequences = served_limits(gpu)
    return Limits(block_size, utilization, tokens, min(sequences, tokens))


def placements(model: ModelSpec, gpu: Gpu, dtype: str, limits: Limits) -> list[Placed]:
    """The model on 1, 2, 4 ... GPUs, as far as it can be split."""
    sizes = takewhile(lambda size: size <= MOST_GPUS, tensor_parallel_sizes(model))
    return [placed(model, gpu, dtype, limits, size) for size in sizes]


def placed(model: ModelSpec, gpu: Gpu, dtype: str, limits: Limits, size: int) -> Placed:
    """The model on so many GPUs."""
    layout = KVLayout(model, dtype, size)
    try:
        return Placed(size, plan_memory(layout, gpu, limits), None)
    except KvsimError as error:
        return Placed(size, None, str(error))


def bytes_by_dtype(model: ModelSpec) -> Iterator[tuple[str, int, int]]:
    """Name of the format, bytes per token of a long and of a short sequence."""
    for dtype in DTYPES:
        try:
            layout = KVLayout(model, dtype)
        except KvsimError:
            continue  # not every attention can be stored in every format
        yield layout.dtype, layout.bytes_per_token, layout.short_bytes_per_token


def concurrency(plan: MemoryPlan, longest: int) -> tuple[list[int], list[float]]:
    """Lengths of sequences, and how many of each length fit at once."""
    lengths = np.unique(np.geomspace(256, max(longest, 512), POINTS).astype(int)).tolist()
    return lengths, [plan.max_concurrency(length) for length in lengths]
