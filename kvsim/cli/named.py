"""The names that a flag takes, as ``--help`` lists them: from the registries, loaded only then."""

from __future__ import annotations

import importlib
from typing import Any

from typer.core import TyperCommand

EVICTIONS = "kvsim.memory.eviction.policies:EVICTIONS"
REGISTRIES = {
    "allocator": "kvsim.memory:ALLOCATORS",
    "allocators": "kvsim.memory:ALLOCATORS",
    "cost_model": "kvsim.costs:COST_MODELS",
    "eviction": EVICTIONS,
    "policies": EVICTIONS,
    "preemption": "kvsim.scheduling.preemption:PREEMPTIONS",
    "reservation": "kvsim.memory.reservation:RESERVATIONS",
    "router": "kvsim.routing:ROUTERS",
    "scheduler": "kvsim.scheduling:SCHEDULERS",
    "schedulers": "kvsim.scheduling:SCHEDULERS",
    "victim": "kvsim.scheduling.victims:VICTIMS",
}
"""Where the names are that a parameter takes: ``module:attribute``."""


class Named(TyperCommand):
    """A command whose help lists, flag by flag, the names that there are."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Its help, with the names."""
        for parameter in self.params:
            if parameter.name in REGISTRIES:
                text, bracket, default = str(getattr(parameter, "help", "")).partition(" \\[")
                parameter.help = f"{text} Names: {names(parameter.name)}.{bracket}{default}"  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


def names(parameter: str) -> str:
    """The names that a parameter takes, by commas."""
    module, _, attribute = REGISTRIES[parameter].partition(":")
    return ", ".join(getattr(importlib.import_module(module), attribute))
