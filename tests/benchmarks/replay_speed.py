"""How fast kvsim replays, as whole processes: start-up, reading, simulating and writing included.

    python tests/benchmarks/replay_speed.py --mooncake conversation_trace.jsonl.gz [--repeats 3]
        [--million] [--out reports]

Each case runs ``kvsim replay`` in a process of its own and reads the operating system's account of
it: user and system CPU seconds and peak memory. The figure quoted is requests per CPU second (user
and system) of the fastest repeat; other processes can only slow a run down. Nothing here is a test.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

KVSIM = [sys.executable, "-m", "kvsim"]
ENGINE = [
    "--model",
    "llama-3-8b",
    "--gpu",
    "h200",
    "--block-size",
    "16",
]
ROOFLINE = ["--cost-model", "roofline"]
MILLION = ["--preset", "conversation", "--requests", "1000000", "--rate", "512", "--seed", "1"]


class Case(NamedTuple):
    """One command line, by name."""

    name: str
    requests: int
    arguments: list[str]


class Cost(NamedTuple):
    """What a finished process used."""

    user_s: float
    system_s: float
    peak_mib: float

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s


def run(arguments: list[str]) -> Cost:
    """Run kvsim to its end and account for it."""
    process = subprocess.Popen([*KVSIM, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"kvsim {' '.join(arguments)} failed with status {status}")
    return Cost(usage.ru_utime, usage.ru_stime, usage.ru_maxrss / 1024)


def cases(mooncake: str | None, million: Path | None, out: Path) -> Iterator[Case]:
    """Everything that is measured: the main case first, then every allocator and scheduler."""
    write = ["--out", str(out), "--json"]
    if mooncake:
        base = ["replay", mooncake, *ENGINE, "--replicas", "4", *write]
        yield Case("mooncake, 4 replicas, profile", 12_031, base)
        yield Case("mooncake, 4 replicas, vllm", 12_031, [*base, "--engine", "vllm"])
        base += ROOFLINE
        yield Case("mooncake, 4 replicas, roofline", 12_031, base)
        for allocator in ("contiguous", "buddy", "paged", "radix"):
            for scheduler in ("static", "continuous", "chunked"):
                options = ["--allocator", allocator, "--scheduler", scheduler]
                yield Case(f"mooncake, {allocator}, {scheduler}", 12_031, base + options)
    if million:
        arguments = ["replay", str(million), *ENGINE, "--replicas", "64", *write]
        yield Case("a million, 64 replicas, profile", 1_000_000, arguments)
        yield Case("a million, 64 replicas, roofline", 1_000_000, arguments + ROOFLINE)


def measure(case: Case, repeats: int, out: Path) -> dict[str, object]:
    """The fastest of several runs."""
    costs = []
    for _ in range(repeats):
        for file in out.glob("*"):
            file.unlink()
        costs.append(run(case.arguments))
    best = min(costs, key=lambda cost: cost.cpu_s)
    row: dict[str, object] = {
        "case": case.name,
        "requests": case.requests,
        "requests_per_cpu_s": round(case.requests / best.cpu_s),
        "user_s": round(best.user_s, 3),
        "system_s": round(best.system_s, 3),
        "peak_mib": round(max(cost.peak_mib for cost in costs)),
        "repeats": repeats,
    }
    print(
        f"{case.name:<40} {row['requests_per_cpu_s']:>8} req/CPU-s  {best.user_s:7.2f} user  "
        f"{best.system_s:6.2f} sys  {row['peak_mib']:>5} MiB",
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mooncake", help="Mooncake's conversation_trace.jsonl[.gz]")
    parser.add_argument("--million", action="store_true", help="also a million generated requests")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="folder for replay_speed.json")
    options = parser.parse_args()
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        million = Path(folder) / "million.jsonl"
        if options.million:
            run(["trace", "generate", str(million), *MILLION])
        out = Path(folder) / "run"
        rows = [
            measure(case, 1 if case.requests > 100_000 else options.repeats, out)
            for case in cases(options.mooncake, million if options.million else None, out)
        ]
    if options.out:
        report = {"python": platform.python_version(), "cpus": os.cpu_count(), "cases": rows}
        path = options.out / "replay_speed.json"
        path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
