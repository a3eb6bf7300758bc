"""The figures of :mod:`.bench` as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

NAMES = {
    "mean_kv_cache_usage": ("KV held", "%"),
    "utilisation": ("KV used", "%"),
    "mean_batch": ("tokens an iteration", ""),
    "output_throughput": ("output tokens/s", ""),
    "mean_ttft_ms": ("TTFT mean, ms", ""),
    "median_ttft_ms": ("TTFT p50, ms", ""),
    "p99_ttft_ms": ("TTFT p99, ms", ""),
    "mean_tpot_ms": ("TPOT mean, ms", ""),
    "median_tpot_ms": ("TPOT p50, ms", ""),
    "p99_tpot_ms": ("TPOT p99, ms", ""),
    "mean_e2el_ms": ("E2E mean, ms", ""),
    "duration": ("duration, s", ""),
    "num_iterations": ("iterations", ""),
}
Row = dict[str, Any]


def markdown(report: Row) -> str:
    """The whole report."""
    facts = "\n".join(f"- {name}: {value}" for name, value in report["provenance"].items())
    parts = [
        "# Simulated and executed",
        facts,
        setting(report),
        comparison(report["allocators"]),
        steps(report["calibration"]),
        verified(report["verified"]),
        attention(report["attention"]),
        copies(report["copies"]),
        swaps(report["swaps"]),
    ]
    return "\n\n".join(parts) + "\n"


def setting(report: Row) -> str:
    """What was run, in words."""
    setup, found = report["setup"], report["calibration"]
    return (
        f"## Four allocators, one workload\n\n{setup['model']} in bfloat16 with random weights, "
        f"{setup['requests']} requests at {setup['rate']:g} a second, prompts {setup['prefix_tokens']} "
        f"shared tokens + {setup['prompt']}, answers {setup['output']}; pool of {setup['blocks']:,} "
        f"blocks of 16, at most {setup['max_num_seqs']} sequences of {setup['max_model_len']:,} tokens, "
        f"2,048 tokens an iteration. The simulation takes its times from the shipped profile "
        f"(`--cost-model hosted`) and one constant, {found['overhead'] * 1e3:.3f} ms that an iteration "
        "takes beyond its operators: the median decode iteration of a run of another seed "
        f"({found['iterations']:,} iterations, {found['seconds']:.1f} s). {found['host'] * 1e3:.3f} ms of "
        "it the device waited for the host; the rest lies between kernels."
    )


def comparison(rows: Sequence[Row]) -> str:
    """Executed, simulated and the error of each metric, for every allocator."""
    head = ["", *(f"{row['allocator']}{named(row['settings'])}" for row in rows)]
    lines = [
        [label, *(cell(row, metric, unit) for row in rows)]
        for metric, (label, unit) in NAMES.items()
    ]
    lines.append(
        ["preemptions", *(pair(row, "num_preemptions", lambda value: f"{value:,}") for row in rows)]
    )
    lines.append(
        [
            "prefix hits",
            *(pair(row, "prefix_cache_hit_rate", lambda value: f"{value:.1%}") for row in rows),
        ]
    )
    lines.append(["**median error**", *(f"**{row['median_error']:.1%}**" for row in rows)])
    every = [abs(error) for row in rows for error in row["errors"].values()]
    return (
        "Executed / simulated, and the error of the simulation:\n\n"
        + table(head, lines)
        + f"\n\nMedian of all {len(every)} errors: {median(every):.1%}; largest: {max(every):.1%}."
    )


def named(settings: Row) -> str:
    """What an allocator reserves."""
    return f" ({settings['reservation']})" if "reservation" in settings else ""


def cell(row: Row, metric: str, unit: str) -> str:
    """Both values and the error."""
    values = (shown(row[kind][metric], unit) for kind in ("executed", "simulated"))
    error = row["errors"].get(metric)
    return " / ".join(values) + (f" ({error:+.1%})" if error is not None else "")


def pair(row: Row, metric: str, form: Any) -> str:
    """Both values of something that is not judged."""
    return " / ".join(form(row[kind][metric] or 0) for kind in ("executed", "simulated"))


def shown(value: float, unit: str) -> str:
    """A number with three or four digits that mean something."""
    if unit == "%":
        return f"{value:.1%}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def steps(found: Row) -> str:
    """How well single iterations are predicted."""
    rows = [
        [kind, f"{one['iterations']:,}", f"{one['median']:+.1%}", f"{one['sum']:+.1%}"]
        for kind, one in found["residuals"].items()
    ]
    return "Iterations of the calibrating run, predicted against measured:\n\n" + table(
        ["batch", "iterations", "median", "sum"], rows
    )


def verified(rows: Iterable[Row]) -> str:
    """How far outputs over managed memory are from those over contiguous memory."""
    lines = [
        [r["allocator"], r["kv"], f"{r['sequences']:,}", f"{r['tokens']:,}", f"{r['largest_error']:.4f}",
         f"{r['num_preemptions']:,}", f"{r['recomputed_tokens']:,}", f"{r['num_evictions']:,}",
         f"{r['prefix_cache_hit_rate'] or 0:.1%}"]
        for r in rows
    ]  # fmt: skip
    head = ["allocator", "KV", "sequences", "outputs", "largest error", "preemptions", "recomputed",
            "evictions", "hits"]  # fmt: skip
    return (
        "## Outputs over managed memory\n\nLlama-3.2-1B in bfloat16, 40 requests, a quarter of them three "
        "samples and a quarter three beams, in a pool of 256 blocks of 16. Every output (what the output "
        "head sees when a token is drawn) is compared with a pass of the same tokens over contiguous "
        "memory; relative error, of which 0.05 is accepted.\n\n"
    ) + table(head, lines)


def attention(rows: Iterable[Row]) -> str:
    """Kernel time by block size and order."""
    lines = [
        [r["kind"], str(r["count"]), f"{r['context']:,}", r["block"], r["order"],
         f"{r['median']:.1f}", f"{r['ratio']:.3f}"]
        for r in rows
    ]  # fmt: skip
    head = ["attention", "sequences or new tokens", "context", "block", "order", "us", "over range"]
    return (
        "## What paging costs in kernel time\n\nOne layer (32/8 heads of 128, bfloat16), microseconds "
        "a launch among many; *range*: every sequence in one contiguous range.\n\n"
    ) + table(head, lines)


def copies(rows: Iterable[Row]) -> str:
    """Copy-on-write."""
    lines = [
        [str(r["block"]), str(r["copied"]), f"{r['bytes'] / 2**20:.1f}", f"{r['microseconds']:.1f}",
         f"{r['bytes_per_second'] / 1e12:.2f}"]
        for r in rows
    ]  # fmt: skip
    head = ["block", "copied at once", "MiB", "us", "TB/s, read and written"]
    return "## Copy-on-write\n\nBlocks of all 32 layers in one launch.\n\n" + table(head, lines)


def swaps(rows: Iterable[Row]) -> str:
    """Swapping."""
    lines = [
        [str(r["block"]), r["way"], str(r["blocks"]), f"{r['bytes_per_second'] / 1e9:.1f}"]
        for r in rows
    ]
    return (
        "## Swapping\n\n256 MiB of scattered blocks of all 32 layers to pinned host memory and back: "
        "with a copy for each layer's keys and values of each block, or gathered by one launch into a "
        "copy in one piece.\n\n"
    ) + table(["block", "way", "blocks", "GB/s"], lines)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, numbers to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
