"""On what machine, with what software and at what clock something was measured."""

from __future__ import annotations

import platform
import subprocess
import time
from typing import Any

import torch
import triton


def describe(device: str) -> dict[str, Any]:
    """What was measured, with what, when."""
    facts: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
    }
    if device != "cuda":
        return {"device": platform.processor() or "cpu", **facts}
    found = torch.cuda.get_device_properties(0)
    return {
        "device": found.name,
        "devices": torch.cuda.device_count(),
        "multiprocessors": found.multi_processor_count,
        "l2_bytes": found.L2_cache_size,
        "memory_bytes": found.total_memory,
        "driver": query("driver_version"),
        **facts,
    }


def query(field: str) -> str:
    """One field of nvidia-smi; empty where it does not answer."""
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits", "--id=0"],
            capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def clock(device: torch.device) -> int | None:
    """The clock of the multiprocessors now, MHz."""
    text = query("clocks.sm") if device.type == "cuda" else ""
    return int(text) if text.isdigit() else None
