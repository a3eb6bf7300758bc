"""``kvsim dashboard``: runs, sweeps and plans in a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kvsim.errors import ConfigError


def dashboard(
    runs: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUNS_DIR]",
            help="Folder of runs, sweeps and plans; without one, samples are replayed.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port to listen on.")] = 8501,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any other than this one is open to others.")
    ] = "127.0.0.1",
) -> None:
    """Show runs, sweeps and plans in a browser, and replay traces there."""
    from kvsim.dashboards import launch

    launch.require_packages()
    if runs is not None and not runs.is_dir():
        raise ConfigError(f"{runs}: {'is not a folder' if runs.exists() else 'does not exist'}")
    launch.require_free(host, port)
    if not launch.is_private(host):
        print(
            f"kvsim: warning: {host} can be reached from other machines; whoever can open the page "
            "can read the runs and start replays",
            file=sys.stderr,
        )
    launch.serve(runs, host, port)
