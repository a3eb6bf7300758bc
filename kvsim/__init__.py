"""Trace-driven simulation of KV-cache management in LLM serving.

The names below are the public interface; each is imported when it is first used, so that importing
``kvsim`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvsim.advice import recommend
    from kvsim.compose import simulate
    from kvsim.core import Request
    from kvsim.errors import KvsimError
    from kvsim.frames import frame
    from kvsim.planning import Question, plan
    from kvsim.planning.archive import Archive
    from kvsim.planning.objective import read_objective
    from kvsim.runs import RunResult, load_run
    from kvsim.scenario import Scenario
    from kvsim.workload import open_trace

__version__ = "0.1.0"

__all__ = [
    "Archive",
    "KvsimError",
    "Question",
    "Request",
    "RunResult",
    "Scenario",
    "__version__",
    "frame",
    "load_run",
    "open_trace",
    "plan",
    "read_objective",
    "recommend",
    "simulate",
]

_HOMES = {
    "Archive": "kvsim.planning.archive",
    "KvsimError": "kvsim.errors",
    "Question": "kvsim.planning",
    "Request": "kvsim.core",
    "RunResult": "kvsim.runs",
    "Scenario": "kvsim.scenario",
    "frame": "kvsim.frames",
    "load_run": "kvsim.runs",
    "read_objective": "kvsim.planning.objective",
    "open_trace": "kvsim.workload",
    "plan": "kvsim.planning",
    "recommend": "kvsim.advice",
    "simulate": "kvsim.compose",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kvsim' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
