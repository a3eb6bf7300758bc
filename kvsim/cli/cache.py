"""``kvsim cache``: what a prefix cache of a capacity and a policy would save, without time."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvsim.cli.trace import READING, Given, Source, with_flags
from kvsim.errors import ConfigError, shown
from kvsim.files import require_folder
from kvsim.lists import listed

if TYPE_CHECKING:
    from kvsim.analysis.accesses import Accesses
    from kvsim.analysis.savings import TokenCost
    from kvsim.caching.capacity import Capacity
    from kvsim.caching.parts import PartRow
    from kvsim.caching.reuse import Reuse
    from kvsim.caching.study import Study
    from kvsim.catalog import Gpu
    from kvsim.layout import KVLayout
    from kvsim.memory.eviction import EvictionPolicy, EvictionQueue, MakePolicy
    from kvsim.registry import Blueprint

CAPACITIES = "1%,2%,5%,10%,20%,50%,100%"


@with_flags({name: flag for name, flag in READING.items() if name != "hash_block"})
def cache(
    trace: Source,
    capacities: Annotated[
        str, typer.Option(help="By commas: 64GiB, 6400blocks, 3Mtokens, 10% of all blocks, inf.")
    ] = CAPACITIES,
    policies: Annotated[str, typer.Option(help="Eviction policies, by commas.")] = "lru,fifo,lfu",
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="Option of a policy: length-aware.keep=late. Repeatable."),
    ] = None,
    block_size: Annotated[
        int | None, typer.Option(min=1, help="Tokens in a block; without, those of a hash id.")
    ] = None,
    hash_block: Annotated[
        int | None, typer.Option(help="Tokens that a hash id stands for, if the file does not say.")
    ] = None,
    partial_blocks: Annotated[
        str, typer.Option(help="Last blocks that are not full: drop them, or keep them as blocks.")
    ] = "drop",
    model: Annotated[
        str, typer.Option(help="Model whose KV bytes capacities mean.")
    ] = "llama-3-8b",
    kv_cache_dtype: Annotated[
        str, typer.Option(help="Type of its cached keys and values.")
    ] = "auto",
    gpu: Annotated[
        str | None, typer.Option(help="Also say what the hits save: GPU hours, TTFT and dollars.")
    ] = None,
    quotas: Annotated[
        str | None, typer.Option(help="Each tenant's share of the cache: acme=50%,*=10%.")
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="Draw figures into this folder.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    *,
    given: Given,
) -> None:
    """Count the hits of prefix caches by capacity and policy, and the bounds on them."""
    from kvsim.caching import accesses_of
    from kvsim.caching.parts import divided, parts_study
    from kvsim.caching.reuse import reuse_of
    from kvsim.caching.study import study
    from kvsim.cli.cache_parts import awaited, read_shares
    from kvsim.workload import TraceOptions, open_trace

    if plots is not None:
        require_folder(plots, ".png")
    makers = makers_of(policies, assignments or [])
    shares = None if quotas is None else read_shares(quotas, given.get("isolation"))
    opened = open_trace(trace, TraceOptions(**given, hash_block=hash_block))
    requests = opened if shares is None else awaited(opened, shares)
    accesses = accesses_of(requests, block_size, partial=partial_blocks)
    wanted = capacities_of(capacities, accesses, model, kv_cache_dtype)
    found = study(accesses, wanted, makers)
    parts = None
    if shares is not None:
        alike = partial(accesses_of, block_size=accesses.block_size, partial=partial_blocks)
        parts = parts_study(divided(requests, shares, opened.name), wanted, makers, alike)
    cost = None if gpu is None else mean_token_cost(model, kv_cache_dtype, gpu, found)
    if plots is not None:
        from kvsim.caching.figures import write_figures

        write_figures(accesses, found, plots, cost)
    if json:
        print_json(opened.name, found, reuse_of(accesses), cost, parts)
    else:
        from kvsim.cli.cache_tables import print_table

        print_table(found, cost, parts)


def makers_of(policies: str, assignments: list[str]) -> Mapping[str, MakePolicy]:
    """For each policy what makes it, its options settled."""
    from kvsim.memory.eviction.policies import EVICTIONS
    from kvsim.registry import blueprint, resolve

    chosen: dict[str, dict[str, object]] = {name: {} for name in listed("--policies", policies)}
    for text in assignments:
        target, equals, value = text.partition("=")
        name, dot, option = target.strip().rpartition(".")
        if not (equals and dot and name in chosen):
            known = ", ".join(f"{policy}.OPTION=VALUE" for policy in chosen)
            raise ConfigError(f"--set {shown(text)} sets no policy's option; accepted: {known}")
        chosen[name][option] = value.strip()
    plans = {
        name: blueprint(
            f"eviction {name}", resolve("eviction", object, EVICTIONS, name), {}, options
        )
        for name, options in chosen.items()
    }
    return {name: maker(plan) for name, plan in plans.items()}


def maker(plan: Blueprint[EvictionPolicy | EvictionQueue]) -> MakePolicy:
    """Makes the policy for caches of different capacities; a mistake in its options shows at once."""
    plan.build(capacity=1)
    return lambda capacity: plan.build(capacity=capacity)


def capacities_of(listing: str, accesses: Accesses, model: str, dtype: str) -> list[Capacity]:
    """The capacities of a listing, in blocks of a trace that hold a model's KV."""
    from kvsim.caching.capacity import Units, read_capacity
    from kvsim.caching.study import distinct_blocks
    from kvsim.catalog import load_model
    from kvsim.layout import KVLayout

    size = accesses.block_size
    block_bytes = KVLayout(load_model(model), dtype).block_bytes(size)
    units = Units(size, distinct_blocks(accesses), block_bytes)
    return [read_capacity(text, units) for text in listed("--capacities", listing)]


def mean_token_cost(model: str, dtype: str, gpu: str, found: Study) -> TokenCost:
    """What a prompt token of the trace's mean prompt costs on one GPU."""
    from kvsim.catalog import load_gpu, load_model
    from kvsim.layout import KVLayout

    mean = max(1, round(found.prompt_tokens / max(1, found.requests)))
    return token_cost(KVLayout(load_model(model), dtype), load_gpu(gpu), mean)


def token_cost(layout: KVLayout, gpu: Gpu, prompt: int) -> TokenCost:
    """What a prompt token costs in a prompt of ``prompt`` tokens, at the GPU's newest price."""
    from kvsim.analysis.savings import TokenCost
    from kvsim.core import PICOSECONDS, BatchShape
    from kvsim.costs import COST_MODELS
    from kvsim.planning.prices import Preference, quote
    from kvsim.registry import blueprint
    from kvsim.scenario import COMPONENTS

    name = COMPONENTS["cost_model"]
    times = blueprint(f"cost_model {name}", COST_MODELS[name], {}, {}).build(layout=layout, gpu=gpu)
    shape = BatchShape(0, 0, 1, prompt, 0, prompt * (prompt + 1) // 2, 1)
    offer = min(quote(gpu, Preference()).offers, key=lambda one: one.usd_per_gpu_hour)
    source = f"{times.label} times of {layout.model.name} on {gpu.name}; {offer.name}"
    seconds = times.time(shape) / PICOSECONDS / prompt
    gpus = layout.tensor_parallel * layout.pipeline_parallel
    return TokenCost(seconds, gpus, offer.usd_per_gpu_hour, source)


def print_json(
    trace: str,
    found: Study,
    reuse: Reuse,
    cost: TokenCost | None,
    parts: Sequence[PartRow] | None,
) -> None:
    """One object on standard output."""
    import orjson

    from kvsim.cli.cache_parts import costs
    from kvsim.cli.cache_tables import worth

    document = {"trace": Path(trace).name, **found.as_dict(), "reuse": reuse}
    if cost is not None:
        document |= {"token_cost": cost, "savings": worth(found, cost)}
    if parts is not None:
        document |= {"quotas": parts, "quotas_cost": costs(found, parts, cost)}
    sys.stdout.write(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n")
