"""Trace-driven simulation of KV-cache management in LLM serving.

The names below are the public interface; each is imported when it is first used, so that importing
``kvsim`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvsim.compose import simulate
    from kvsim.core import Request
    from kvsim.errors import KvsimError
    from kvsim.planning import Question, plan
    from kvsim.runs import RunResult
    from kvsim.scenario import Scenario
    from kvsim.workload import open_trace

__version__ = "0.1.0"

__all__ = [
    "KvsimError",
    "Question",
    "Request",
    "RunResult",
    "Scenario",
    "__version__",
    "open_trace",
    "plan",
    "simulate",
]

_HOMES = {
    "KvsimError": "kvsim.errors",
    "Question": "kvsim.planning",
    "Request": "kvsim.core",
    "RunResult": "kvsim.runs",
    "Scenario": "kvsim.scenario",
    "open_trace": "kvsim.workload",
    "plan": "kvsim.planning",
    "simulate": "kvsim.compose",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kvsim' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
