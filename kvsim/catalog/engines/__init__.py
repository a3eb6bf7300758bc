"""Serving engines by name and version: the rules and delays that tell one release from another."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kvsim.errors import unknown

FOLDER = Path(__file__).parent


class Engine(NamedTuple):
    """What a release does differently, and what it takes beside the GPU."""

    name: str
    source: str
    asynchronous: bool
    """Whether an iteration is scheduled while the one before it runs."""
    free_order: str
    """Name of the order in which its free blocks are reused."""
    host: Mapping[str, float]
    """Delays of its processes, seconds."""
    launch: Mapping[str, float]
    """What launching a batch takes for each layer, seconds."""
    step: Mapping[str, float]
    """Constants of its iterations."""
    gpu: str
    """The GPU whose runs its constants were read off, and its doubts were seen on."""
    step_doubt: float
    """Relative error of step times that was seen on runs which nothing was fitted to."""
    step_doubt_experts: float
    """The same of models with routed experts, of runs that their constants were fitted to."""


def engine_names() -> list[str]:
    """All releases, the oldest first."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_engine(name: str) -> Engine:
    """An engine by name and release (``vllm-0.23``); a bare name is its latest release."""
    names = engine_names()
    releases = [known for known in names if known == name or known.rpartition("-")[0] == name]
    if not releases:
        raise unknown("engine", name, [*names, *(known.rpartition("-")[0] for known in names)])
    found = releases[-1]
    data = tomllib.loads((FOLDER / f"{found}.toml").read_text(encoding="utf-8"))
    return Engine(found, **data)
