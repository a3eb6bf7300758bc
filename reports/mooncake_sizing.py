"""How many GPUs does the Mooncake conversation trace need? Made anew by one command:

    python reports/mooncake_sizing.py PATH/conversation_trace.jsonl.gz

writes ``mooncake_sizing`` (four GPU types, as page, text and paper), ``mooncake_h200.html`` (H200 alone,
one GPU a replica) and ``mooncake_published.md`` (replays beside published figures) beside this file.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import kvsim
from kvsim.reporting.alternative import attained

HERE = Path(__file__).resolve().parent
NAME = "conversation_trace.jsonl.gz"
AS_OF = "2026-11-29"
LIMITS = {"ttft": 2.0, "tpot": 0.05}
ASKED = ["--slo", "ttft=2s", "--slo", "tpot=50ms", "--attainment", "0.9", "--as-of", AS_OF]
FOUR = ["--gpu", "h200,h100-sxm,a100-80gb,l40s", "--carbon-intensity", "400"]
ALONE = ["--gpu", "h200", "--tensor-parallel-size", "1", "--token-budgets", "auto"]
PUBLISHED = {2: 0.24, 4: 0.84, 6: 0.91, 8: 0.93}
"""Share of requests that meet both limits, by the number of H200, as published with the trace's replay."""
COST_MODELS = ("roofline", "profile")


def plan(folder: Path, *flags: str) -> None:
    """Plan in a folder that holds the trace, and take the reports from there."""
    command = ["plan", NAME, "--model", "llama-3.1-8b", *flags]
    subprocess.run([sys.executable, "-m", "kvsim", *command], cwd=folder, check=True)


def share(trace: Path, cost_model: str, replicas: int) -> tuple[float, str]:
    """Requests that meet both limits on so many H200, and where the times come from."""
    scenario = kvsim.Scenario(
        model="llama-3.1-8b", gpu="h200", replicas=replicas, cost_model=cost_model, slo=LIMITS
    )
    result = kvsim.simulate(scenario, str(trace))
    return attained(result, LIMITS), str(result.summary["cost_model"])


def published(trace: Path) -> Iterator[str]:
    """Replays beside published figures."""
    shares = {name: [share(trace, name, count) for count in PUBLISHED] for name in COST_MODELS}
    yield "# The Mooncake trace on H200: replayed and published\n"
    yield (
        "Share of the requests of `conversation_trace.jsonl.gz` (12,031 in an hour) that get their first "
        "token within 2 s and each further one within 50 ms on average; Llama-3.1-8B, one GPU a replica.\n"
    )
    labels = " | ".join(f"kvsim, {rows[0][1]} times" for rows in shares.values())
    yield f"| GPUs | published | {labels} |"
    yield "| ---: | ---: |" + " ---: |" * len(shares)
    for place, (count, known) in enumerate(PUBLISHED.items()):
        found = " | ".join(f"{100 * rows[place][0]:.1f} %" for rows in shares.values())
        yield f"| {count} | {100 * known:.0f} % | {found} |"
    yield "\nWritten by `python reports/mooncake_sizing.py conversation_trace.jsonl.gz`."


def main() -> None:
    """Write all of it."""
    trace = Path(sys.argv[1]).resolve()
    with TemporaryDirectory(prefix="kvsim-") as made:
        folder = Path(made)
        (folder / NAME).symlink_to(trace)
        outputs = [f"--report=mooncake_sizing.{kind}" for kind in ("html", "md", "pdf")]
        plan(folder, *FOUR, *ASKED, *outputs)
        plan(folder, *ALONE, *ASKED, "--report=mooncake_h200.html")
        shutil.copytree(folder, HERE, dirs_exist_ok=True, ignore=shutil.ignore_patterns(NAME))
    text = "\n".join(published(trace)) + "\n"
    (HERE / "mooncake_published.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
