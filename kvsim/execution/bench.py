"""Check simulation against execution on the GPU at hand: ``python -m kvsim.execution.bench``.

Writes ``OUT.json`` (every figure, with provenance) and ``OUT.md`` (tables): the four allocators on one
workload, simulated and executed; what paging costs in kernel time; copy-on-write and swapping.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from kvsim.execution.bench_report import markdown
from kvsim.execution.comparison import Setup, calibration, compared
from kvsim.execution.paging import attention, copies, swaps
from kvsim.execution.verification import verifications, workload

VERIFIED = "llama-3.2-1b"
"""Model whose outputs are compared."""


def main() -> None:
    """Measure everything and write the two reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("reports/hardware_h200"))
    parser.add_argument("--requests", type=int, default=Setup().requests)
    parser.add_argument("--runs", type=Path, help="keep the run folders here")
    given = parser.parse_args()
    setup = replace(Setup(), requests=given.requests)
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.runs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        report: dict[str, Any] = {"provenance": provenance()}
        report |= {"attention": [*attention()], "copies": [*copies()], "swaps": [*swaps()]}
        report["verified"] = [*verifications(VERIFIED, setup.executor, workload(), folder)]
        report |= allocators(setup, folder)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    given.out.with_suffix(".md").write_text(markdown(report))


def allocators(setup: Setup, folder: Path) -> dict[str, Any]:
    """The comparison, with what the simulation was told of the host."""
    began = time.perf_counter()

    def log(line: str) -> None:
        print(f"{time.perf_counter() - began:6.1f} s  {line}", flush=True)

    found = calibration(setup, folder)
    log(f"overhead {found['overhead'] * 1e3:.3f} ms an iteration; {found['residuals']}")
    rows = [*compared(setup, found["overhead"], folder, log)]
    return {"setup": asdict(setup), "calibration": found, "allocators": rows}


def provenance() -> dict[str, str]:
    """Where the figures come from."""
    return {
        "device": torch.cuda.get_device_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": version("triton"),
        "date": datetime.now(UTC).date().isoformat(),
        "command": " ".join(["python -m kvsim.execution.bench", *sys.argv[1:]]),
    }


if __name__ == "__main__":
    main()
