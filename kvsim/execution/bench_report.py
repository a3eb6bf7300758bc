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
COUNTED = {
    "num_preemptions": ("preemptions", ","),
    "swapped_tokens": ("tokens swapped", ","),
    "prefix_cache_hit_rate": ("prefix hits", ".1%"),
}
"""What is shown and not judged, and in which format."""
BRIEFLY = {
    "utilisation": ("KV used", 1, ".1%"),
    "mean_batch": ("tokens an iteration", 1, ".1f"),
    "output_throughput": ("output tokens/s", 1, ",.0f"),
    "mean_ttft_ms": ("TTFT mean, s", 1e-3, ".2f"),
    "mean_tpot_ms": ("TPOT mean, ms", 1, ".2f"),
}
"""What the project's README shows: label, factor and format."""
SHOWN = ("device", "driver", "python", "torch", "triton", "date", "command")
"""What the report says of where a part's figures come from; the rest is in the JSON file."""
Row = dict[str, Any]


def markdown(report: Row) -> str:
    """The whole report."""
    kernels, compared, again = (report[part] for part in ("kernels", "allocators", "repeat"))
    parts = [
        "# Simulated and executed",
        provenance(report),
        "## Four allocators, one workload",
        setting(compared),
        comparison(compared["rows"]),
        steps(compared["rows"]),
        "## The same once more",
        elsewhere(compared["provenance"], again["provenance"]),
        comparison(again["rows"]),
        verified([*report["verified"]["rows"], *report["swapped"]["rows"]]),
        attention(kernels["attention"]),
        copies(kernels["copies"]),
        swaps(kernels["swaps"]),
    ]
    return "\n\n".join(parts) + "\n"


def elsewhere(first: Row, second: Row) -> str:
    """Whether the second run was started by itself."""
    same = first["command"] == second["command"]
    return "By the same command, right after." if same else "By a command of its own."


def provenance(report: Row) -> str:
    """Where each part's figures come from."""
    facts = {part: found["provenance"] for part, found in report.items()}
    rows = [[part, *(found[name] for name in SHOWN)] for part, found in facts.items()]
    return table(["part", *SHOWN], rows)


def setting(report: Row) -> str:
    """What was run, in words."""
    setup = report["setup"]
    return (
        f"{setup['model']} in bfloat16 with random weights, "
        f"{setup['requests']} requests at {setup['rate']:g} a second, prompts {setup['prefix_tokens']} "
        f"shared tokens + {setup['prompt']}, answers {setup['output']}; pool of {setup['blocks']:,} "
        f"blocks of 16, at most {setup['max_num_seqs']} sequences of {setup['max_model_len']:,} tokens, "
        f"2,048 tokens an iteration. The simulation takes its times from the shipped profile "
        f"(`--cost-model hosted`) and what an iteration takes beyond its operators: a line through the "
        f"decode iterations of a run of another seed just before, of the paged allocator in all columns. "
        f"It follows the median iteration and is shown for each column's mean number of sequences; how long "
        f"the device was idle is a mean, pauses included."
    )


def comparison(rows: Sequence[Row]) -> str:
    """Executed, simulated and the error of each metric, for every allocator."""
    head = ["", *(row["case"] for row in rows)]
    lines = [
        [label, *(cell(row, metric, unit) for row in rows)]
        for metric, (label, unit) in NAMES.items()
    ]
    for metric, (label, form) in COUNTED.items():
        lines.append([label, *(pair(row, metric, form) for row in rows)])
    if all("host_ms" in row["executed"] for row in rows):
        hosts = (f"{row['executed']['host_ms']:.3f} /" for row in rows)
        lines.append(["device idle in an iteration, ms", *hosts])
    lines.append(["told of an iteration, ms", *(f"/ {told_of(row):.3f}" for row in rows)])
    lines.append(["**median error**", *(f"**{row['median_error']:.1%}**" for row in rows)])
    every = [abs(error) for row in rows for error in row["errors"].values()]
    return (
        "Executed / simulated, and the error of the simulation:\n\n"
        + table(head, lines)
        + f"\n\nMedian of all {len(every)} errors: {median(every):.1%}; largest: {max(every):.1%}."
    )


def told_of(row: Row) -> float:
    """Milliseconds beyond the operators that the simulation was told, with the mean number of sequences."""
    told = row["calibration"]["overhead"]
    return 1e3 * (told["host"] + told["host_per_sequence"] * row["executed"]["mean_batch"])


def brief(rows: Iterable[Row]) -> str:
    """The table of the project's README."""
    labels = (label for label, _, _ in BRIEFLY.values())
    lines = [
        [
            row["case"],
            *(" / ".join(format(row[kind][metric] * factor, form) for kind in ("executed", "simulated"))
              for metric, (_, factor, form) in BRIEFLY.items()),
            f"{row['median_error']:.1%}",
        ]
        for row in rows
    ]  # fmt: skip
    return table(["configuration", *labels, "median error"], lines)


def cell(row: Row, metric: str, unit: str) -> str:
    """Both values and the error."""
    values = (shown(row[kind][metric], unit) for kind in ("executed", "simulated"))
    error = row["errors"].get(metric)
    return " / ".join(values) + (f" ({error:+z.1%})" if error is not None else "")


def pair(row: Row, metric: str, form: str) -> str:
    """Both values of something, in a format."""
    return " / ".join(format(row[kind][metric] or 0, form) for kind in ("executed", "simulated"))


def shown(value: float, unit: str) -> str:
    """A number with three or four digits that mean something."""
    if unit == "%":
        return f"{value:.1%}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def steps(rows: Sequence[Row]) -> str:
    """How well single iterations are predicted."""
    every = [row["calibration"]["residuals"] for row in rows]
    kinds = dict.fromkeys(kind for one in every for kind in one)
    lines = [[kind, *(residual(one.get(kind)) for one in every)] for kind in kinds]
    return (
        "Iterations of the calibrating runs, predicted against measured: the median one / their sum (number):\n\n"
        + table(["batch", *(row["case"] for row in rows)], lines)
    )


def residual(found: Row | None) -> str:
    """Of one kind of batch in one run, and of how many iterations."""
    if found is None:
        return "-"
    return f"{found['median']:+z.1%} / {found['sum']:+z.1%} ({found['iterations']:,})"


def verified(rows: Iterable[Row]) -> str:
    """How far outputs over managed memory are from those over contiguous memory."""
    lines = [
        [r["allocator"], r["kv"], r["preemption"], f"{r['sequences']:,}", f"{r['tokens']:,}",
         f"{r['largest_error']:.4f}", f"{r['num_preemptions']:,}", f"{r['recomputed_tokens']:,}",
         f"{r['swapped_tokens']:,}", f"{r['num_evictions']:,}", f"{r['prefix_cache_hit_rate'] or 0:.1%}"]
        for r in rows
    ]  # fmt: skip
    head = ["allocator", "KV", "preemption", "sequences", "outputs", "largest error", "preemptions",
            "recomputed", "swapped", "evictions", "hits"]  # fmt: skip
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
        "## Copies to the host\n\n256 MiB of scattered blocks of all 32 layers to pinned host memory and back: "
        "with a copy for each layer's keys and values of each block, gathered by one launch into a "
        "copy in one piece, or by one launch that reads or writes the host's memory itself, which is how "
        "executed runs swap.\n\n"
    ) + table(["block", "way", "blocks", "GB/s"], lines)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, numbers to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
