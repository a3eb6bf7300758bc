"""Check simulation against execution on the GPU at hand: ``python -m kvsim.execution.bench``.

Writes ``OUT.json`` (every figure, with provenance) and ``OUT.md`` (tables): the four allocators, and
swapping, on one workload, simulated and executed; what paging costs in kernel time; copy-on-write and
copies to the host. Parts that are not measured again stay. Prints the table of the project's README.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from kvsim.execution.bench_report import brief, markdown
from kvsim.execution.comparison import Setup, compared
from kvsim.execution.paging import attention, copies, swaps
from kvsim.execution.verification import RECOMPUTED, SWAPPED, verifications, workload
from kvsim.kernels.provenance import describe

VERIFIED = "llama-3.2-1b"
"""Model whose outputs are compared."""
Part = dict[str, Any]


def main() -> None:
    """Measure the parts that were asked for and write the two reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("reports/hardware_h200"))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--requests", type=int, default=Setup().requests)
    parser.add_argument("--runs", type=Path, help="keep the run folders here")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU here, and all of this is measured on one")
    setup = replace(Setup(), requests=given.requests)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    written = given.out.with_suffix(".json")
    report: dict[str, Part] = json.loads(written.read_text()) if written.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.runs or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for part in given.parts:
            report[part] = {"provenance": provenance(), **PARTS[part](setup, folder)}
            written.write_text(json.dumps(report, indent=1) + "\n")
    missing = [part for part in PARTS if part not in report]
    if missing:
        sys.exit(
            f"{written} has no {', '.join(missing)} yet, so there are no tables: --parts measures them"
        )
    given.out.with_suffix(".md").write_text(markdown(report))
    print(brief(report["allocators"]["rows"]))


def kernels(setup: Setup, folder: Path) -> Part:
    """What paging costs in kernel time; copy-on-write; copies to the host and back."""
    return {"attention": [*attention()], "copies": [*copies()], "swaps": [*swaps()]}


def verified(setup: Setup, folder: Path) -> Part:
    """Outputs of requests that are recomputed where they were preempted."""
    return {"rows": [*verifications(VERIFIED, setup.executor, RECOMPUTED, workload(), folder)]}


def swapped(setup: Setup, folder: Path) -> Part:
    """Outputs of requests that were swapped."""
    return {"rows": [*verifications(VERIFIED, setup.executor, SWAPPED, workload(), folder)]}


def allocators(setup: Setup, folder: Path) -> Part:
    """The allocators, and swapping, simulated and executed, with what the simulation was told of the host."""
    began = time.perf_counter()

    def log(line: str) -> None:
        print(f"{time.perf_counter() - began:6.1f} s  {line}", flush=True)

    return {"setup": asdict(setup), "rows": [*compared(setup, folder, log)]}


PARTS: dict[str, Callable[[Setup, Path], Part]] = {
    "kernels": kernels,
    "verified": verified,
    "swapped": swapped,
    "allocators": allocators,
    "repeat": allocators,
}
"""What is measured, in this order; each part says where its figures come from."""


def provenance() -> dict[str, Any]:
    """Where the figures come from."""
    command = " ".join(["python -m kvsim.execution.bench", *sys.argv[1:]])
    return {**describe("cuda"), "command": command}


if __name__ == "__main__":
    main()
