"""``kvsim step-time``: what an iteration takes, operator by operator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvsim.core import BatchShape
    from kvsim.costs.breakdown import StepTime

MOST = 10**9
"""Largest count or length that is accepted."""


def step_time(
    model: Annotated[str, typer.Option(help="Model by name, or a config.json.")] = "llama-3-8b",
    gpu: Annotated[str, typer.Option(help="GPU by name.")] = "h200",
    decode: Annotated[
        list[str] | None,
        typer.Option(help="COUNTxCONTEXT: sequences that decode, tokens each. Repeatable."),
    ] = None,
    prefill: Annotated[
        list[str] | None,
        typer.Option(help="NEWxPAST: a prompt that ends with NEW tokens on PAST. Repeatable."),
    ] = None,
    tensor_parallel_size: Annotated[int, typer.Option(help="GPUs that share each layer.")] = 1,
    pipeline_parallel_size: Annotated[int, typer.Option(help="GPUs that share the layers.")] = 1,
    kv_cache_dtype: Annotated[str, typer.Option(help="auto, bf16, fp8, int8, ...")] = "auto",
    weight_dtype: Annotated[
        str, typer.Option(help="auto (as released), bfloat16, fp8, int8, int4, nvfp4, mxfp4.")
    ] = "auto",
    block_size: Annotated[int, typer.Option(min=1, max=65_536, help="Tokens in a KV block.")] = 16,
    profile: Annotated[str, typer.Option(help="Profile by name, or a file.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compose the time of one iteration from measured operators. Without an engine's host work."""
    from kvsim.catalog import load_gpu, load_model
    from kvsim.costs import Measured
    from kvsim.costs.breakdown import breakdown
    from kvsim.layout import KVLayout

    shape = batch_shape(decode or [], prefill or [])
    layout = KVLayout(
        load_model(model), kv_cache_dtype, tensor_parallel_size, pipeline_parallel_size
    )
    measured = Measured(
        layout, load_gpu(gpu), profile=profile, weight_dtype=weight_dtype, block_size=block_size
    )
    found = breakdown(measured, shape)
    if as_json:
        typer.echo(json.dumps(as_dict(found, measured.label)))
    else:
        show(found, f"{layout.model.name} on {measured.gpu.name}, {measured.label}")


def batch_shape(decodes: list[str], prefills: list[str]) -> BatchShape:
    """The batch that the options describe; ConfigError if it is empty or cannot be read."""
    from kvsim.core import BatchShape
    from kvsim.errors import ConfigError

    if not decodes and not prefills:
        raise ConfigError("an empty iteration: give --decode COUNTxCONTEXT or --prefill NEWxPAST")
    batches = [pair("--decode", text, "COUNTxCONTEXT") for text in decodes]
    chunks = [pair("--prefill", text, "NEWxPAST") for text in prefills]
    count = sum(count for count, _ in batches)
    return BatchShape(
        count,
        sum(count * context for count, context in batches),
        len(chunks),
        sum(new for new, _ in chunks),
        sum(past for _, past in chunks),
        sum(new * past + new * (new + 1) // 2 for new, past in chunks),
        count + len(chunks),
        sum(count * context**2 for count, context in batches),
        tuple(chunks),
    )


def pair(option: str, text: str, form: str) -> tuple[int, int]:
    """Two numbers with an x between them, the first not 0."""
    from kvsim.errors import ConfigError

    first, _, second = text.lower().partition("x")
    if not (first.isdecimal() and second.isdecimal() and 0 < int(first) <= MOST >= int(second)):
        raise ConfigError(f"{option} {text!r}: expected {form}, as in 64x4096")
    return int(first), int(second)


def as_dict(found: StepTime, label: str) -> dict[str, object]:
    """The iteration for machines, milliseconds."""
    operators = [
        {
            "name": part.name,
            "ms": round(part.time, 6),
            "share": round(part.time / found.total, 4),
            "bound_ms": round(part.bound, 6),
            "interval_ms": [round(part.low, 6), round(part.high, 6)],
            "provenance": part.provenance,
        }
        for part in found.parts
    ]
    return {
        "total_ms": round(found.total, 6),
        "interval_ms": [round(found.low, 6), round(found.high, 6)],
        "label": label,
        "operators": operators,
    }


def show(found: StepTime, title: str) -> None:
    """Print the iteration as a table, longest operators first."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(f"[bold]{title}[/]", soft_wrap=True)
    table = Table("operator", box=None, pad_edge=False)
    for heading in ("ms", "share", "bound ms", "from", "to"):
        table.add_column(heading, justify="right")
    table.add_column("provenance")
    for part in sorted(found.parts, key=lambda part: -part.time):
        numbers = (part.time, part.bound, part.low, part.high)
        time, bound, low, high = (f"{number:.3f}" for number in numbers)
        share = f"{part.time / found.total:.1%}"
        table.add_row(part.name, time, share, bound, low, high, part.provenance)
    console.print(table)
    console.print(
        f"\ntotal [bold]{found.total:.3f} ms[/] ({found.low:.3f} to {found.high:.3f}),"
        " without the host's work"
    )
