"""``kvsim calibrate``: measure the GPU of this machine into a profile."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvsim.kernels.operators.series import Scope


def calibrate(
    out: Annotated[
        Path, typer.Option(help="File to write; what is measured is saved as it comes.")
    ],
    device: Annotated[str, typer.Option(help="cuda; cpu measures next to nothing, for tests.")] = (
        "cuda"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="A sparse grid, under two minutes.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep what the file already holds.")
    ] = False,
    gpu: Annotated[
        str | None,
        typer.Option(help="GPU of the catalog that this is; by its own name if not given."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Family of operators to measure. Repeatable.")
    ] = None,
) -> None:
    """Measure a GPU operator by operator, from which the step time of any model is composed."""
    from kvsim.errors import ConfigError
    from kvsim.files import require_file

    if device not in ("cuda", "cpu"):
        raise ConfigError(f"--device {device!r}: expected cuda or cpu")
    require_file(out)
    if out.exists() and not resume:
        raise ConfigError(f"--out {out}: exists; give --resume to go on with it, or another name")
    if device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    try:
        from kvsim.kernels.calibrate import calibrate as measure
    except ImportError as error:
        raise ConfigError(
            f"calibrating needs PyTorch and Triton ({error}): pip install 'kvsim[gpu]'"
        ) from None
    scope: Scope = "tiny" if device == "cpu" else "quick" if quick else "full"
    log = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731
    profile = measure(
        out, gpu=gpu, device=device, scope=scope, resume=resume, only=only or (), log=log
    )
    points = sum(len(one["x"]) for table in profile["tables"].values() for one in table)
    typer.echo(f"{out}: {points:,} points of {profile['gpu']}, {len(profile['failed'])} refused")
