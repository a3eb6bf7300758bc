"""Checks kvsim against decisions that real engines have recorded, request by request."""

from __future__ import annotations

from pathlib import Path

from kvsim.validation.reference import Verdict, load_reference
from kvsim.validation.scheduler import check_scheduler

__all__ = ["Verdict", "validate"]


def validate(path: Path, workload: Path | None = None, *, leaps: bool = True) -> Verdict:
    """Replay what an engine served and compare every decision with the engine's own.

    ``path`` is a recording of vLLM's scheduler (``CONFIG__WORKLOAD.json.gz``); without ``workload``
    it is looked for as ``workloads/WORKLOAD.jsonl[.gz]`` beside the recording.
    """
    return check_scheduler(load_reference(path), path, workload, leaps=leaps)
