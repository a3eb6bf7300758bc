"""``kvsim validate``: is kvsim right about an engine that its authors did not build?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def validate(
    recording: Annotated[
        Path,
        typer.Argument(help="Recorded decisions of vLLM's scheduler or SGLang's radix cache."),
    ],
    workload: Annotated[
        Path | None,
        typer.Option(
            help="What was submitted; by default workloads/WORKLOAD.jsonl[.gz] beside it."
        ),
    ] = None,
    leaps: Annotated[
        bool, typer.Option("--leaps/--no-leaps", help="Leap over equal iterations, or do not.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Replay what a real engine served and compare every decision with the engine's own."""
    from kvsim.validation import validate as compare

    verdict = compare(recording, workload, leaps=leaps)
    if as_json:
        typer.echo(json.dumps(verdict.as_dict()))
    else:
        typer.echo(f"{verdict.exact} of {verdict.requests} requests exact")
        if verdict.first_mismatch is not None:
            typer.echo(f"first difference: {verdict.first_mismatch.explanation}")
    if verdict.exact < verdict.requests:
        raise typer.Exit(1)
