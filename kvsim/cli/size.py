"""``kvsim size``: how much KV cache a model needs, and how much of it fits on a GPU."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvsim.sizing import MemoryPlan

PARTS = {
    "left_to_others": "left to others",
    "weights": "weights",
    "activations": "activations",
    "graphs": "CUDA graphs, workspaces",
    "communication": "communication buffers",
    "kv_pool": "KV pool",
}


def size(
    model: Annotated[str, typer.Option(help="Model by name, or a config.json.")] = "llama-3-8b",
    gpu: Annotated[str, typer.Option(help="GPU by name.")] = "h200",
    tensor_parallel_size: Annotated[int, typer.Option(help="GPUs that share each layer.")] = 1,
    pipeline_parallel_size: Annotated[int, typer.Option(help="GPUs that share the layers.")] = 1,
    kv_cache_dtype: Annotated[
        str, typer.Option(help="auto, bf16, fp8, int8, int4, nvfp4, fp8_ds_mla, k:fp8,v:int4 ...")
    ] = "auto",
    ssm_state_dtype: Annotated[
        str, typer.Option(help="Dtype of recurrent states: bf16 or fp32.")
    ] = "bf16",
    weight_dtype: Annotated[
        str, typer.Option(help="auto (as released), bfloat16, fp8, int8, int4, nvfp4, mxfp4.")
    ] = "auto",
    block_size: Annotated[int, typer.Option(help="Tokens in a block.")] = 16,
    gpu_memory_utilization: Annotated[
        float, typer.Option(help="Share of the GPU's memory that the engine may use.")
    ] = 0.92,
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(help="Tokens in an iteration; without, what vLLM takes on the GPU."),
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(help="Sequences that may run at once; without, what vLLM takes on the GPU."),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(help="Length of a sequence to size; the model's longest if not given."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Size the KV cache of a model on a GPU: memory waterfall, blocks, and concurrency."""
    from kvsim.catalog import load_gpu, load_model
    from kvsim.compose.limits import memory_plan, resolved
    from kvsim.layout import KVLayout
    from kvsim.scenario_file import load
    from kvsim.sizing import sequence_length

    layout = KVLayout(
        load_model(model),
        kv_cache_dtype,
        tensor_parallel_size,
        pipeline_parallel_size,
        state_dtype=ssm_state_dtype,
    )
    length = sequence_length(layout.model, tokens)
    given = {
        "block_size": block_size,
        "gpu_memory_utilization": gpu_memory_utilization,
        "max_num_batched_tokens": max_num_batched_tokens,
        "max_num_seqs": max_num_seqs,
        "weight_dtype": weight_dtype,
    }
    limits = load(None, {name: value for name, value in given.items() if value is not None})
    hardware = load_gpu(gpu)
    plan = memory_plan(resolved(limits, layout, hardware), layout, hardware)
    if as_json:
        typer.echo(json.dumps(plan.summary(length)))
    else:
        show(plan, length)


def show(plan: MemoryPlan, tokens: int) -> None:
    """Print the plan as two aligned tables."""
    from rich.console import Console
    from rich.table import Table

    layout = plan.layout
    console = Console(highlight=False)
    gpus = layout.tensor_parallel * layout.pipeline_parallel
    console.print(f"[bold]{layout.model.name}[/] on {gpus} x {plan.gpu.name}, KV in {layout.dtype}")
    memory = Table("memory per GPU", box=None, pad_edge=False)
    memory.add_column("GB", justify="right")
    memory.add_column("share", justify="right")
    for name, part in {**plan.waterfall, "total": plan.total}.items():
        memory.add_row(PARTS.get(name, name), f"{part / 1e9:.2f}", f"{part / plan.total:.1%}")
    console.print(memory)
    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_column(justify="left")
    facts.add_column(justify="right")
    for name, value in figures(plan, tokens):
        facts.add_row(name, value)
    console.print()
    console.print(facts)


def figures(plan: MemoryPlan, tokens: int) -> list[tuple[str, str]]:
    """The answers, with their units."""
    layout = plan.layout
    index = layout.index_bytes_per_token
    return [
        ("KV bytes per token", f"{layout.bytes_per_token:,}"),
        *([("index bytes per token", f"{index:,}")] if index else []),
        ("fixed bytes per sequence", f"{layout.fixed_bytes_per_sequence:,}"),
        (f"KV of {tokens:,} tokens", f"{layout.bytes_per_sequence(tokens) / 1e9:.3f} GB"),
        (f"KV blocks of {plan.limits.block_size}", f"{plan.num_gpu_blocks:,}"),
        ("  beside sequences at once", f"{plan.limits.max_num_seqs:,}"),
        ("  and tokens an iteration", f"{plan.limits.max_num_batched_tokens:,}"),
        ("KV capacity, tokens", f"{plan.kv_tokens_capacity:,}"),
        (f"concurrency at {tokens:,} tokens", f"{plan.max_concurrency(tokens):.2f}"),
    ]
