"""Checks kvsim against decisions that real engines have recorded, request by request."""

from __future__ import annotations

from pathlib import Path

from kvsim.validation.radix import check_radix
from kvsim.validation.reference import Verdict, load_reference
from kvsim.validation.scheduler import check_scheduler

__all__ = ["Verdict", "validate"]


def validate(path: Path, workload: Path | None = None, *, leaps: bool = True) -> Verdict:
    """Repeat what an engine decided and compare every decision with the engine's own.

    ``path`` is a recording of vLLM's scheduler or of SGLang's radix cache
    (``CONFIG__WORKLOAD.json.gz``); without ``workload`` the requests are looked for as
    ``workloads/WORKLOAD.jsonl[.gz]`` beside it.
    """
    recording = load_reference(path)
    if "rows" in recording:
        return check_radix(recording, path, workload)
    return check_scheduler(recording, path, workload, leaps=leaps)
