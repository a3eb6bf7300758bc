"""How the machines were used: memory, batches and queues over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kvsim.analysis.timeseries import grid, resample
from kvsim.reporting.charts import Axis, Bars, Colour, Curves, Line, Panels, Part, Stack
from kvsim.reporting.document import Column, Figure, Section, Table, section
from kvsim.reporting.forms import share
from kvsim.reporting.workload import scale

if TYPE_CHECKING:
    from kvsim.runs import RunResult
    from kvsim.tables import Floats

POINTS = 200


class Pool(NamedTuple):
    """A part of the KV pool."""

    key: str
    label: str
    colour: Colour


PARTS = (
    Pool("used", "used", "blue"),
    Pool("internal_fragmentation", "internal fragmentation", "orange"),
    Pool("reserved", "reserved for later", "amber"),
    Pool("external_fragmentation", "external fragmentation", "pink"),
    Pool("cached", "cached, evictable", "sky"),
    Pool("free", "free", "pale"),
)


def use_of_one(result: RunResult) -> Section | None:
    """One run: its memory and its load over time."""
    samples = result.samples
    table = result.requests
    if not len(samples) or not len(table):
        return None
    edges = grid(samples, float(table.arrival.min()), POINTS)
    columns = resample(samples, edges)
    unit, seconds = scale(float(edges[-1] - edges[0]))
    middles = ((edges[:-1] + edges[1:]) / 2 / seconds).tolist()
    replicas = len(set(samples.replica.tolist()))
    return section(
        "Utilisation and memory",
        use_table(result.summary),
        Figure(
            "kv_memory",
            "KV-cache memory over time. Cached memory is given up when running requests need it.",
            memory(result.summary, columns, middles, unit),
        ),
        Figure(
            "load",
            "Requests that wait and that run, and tokens that an iteration computes (mean of the replicas).",
            load(columns, middles, unit, replicas),
        ),
    )


def use_table(summary: Mapping[str, object]) -> Table:
    """Utilisation in numbers."""
    rows = (
        ("time in which engines compute", summary.get("busy_fraction")),
        ("KV memory in use, mean", summary.get("mean_kv_cache_usage")),
        ("KV memory in use, peak of a replica", summary.get("peak_kv_cache_usage")),
        ("prompt tokens found in the prefix cache", summary.get("prefix_cache_hit_rate")),
    )
    known = tuple((label, value) for label, value in rows if isinstance(value, int | float))
    return Table((Column("share of"), Column("", "share")), known)


def memory(
    summary: Mapping[str, object], columns: Mapping[str, Floats], at: Sequence[float], unit: str
) -> Stack:
    """The pool's parts over time, each with its mean."""
    pool = sum(columns[part.key] for part in PARTS)
    means = shares(summary)
    parts = tuple(
        Part(f"{part.label} {share(means[part.key])}", (columns[part.key] / pool).tolist(), part.colour)
        for part in PARTS
    )  # fmt: skip
    return Stack(Axis(f"time ({unit})"), Axis("share of the KV pool", "share", most=1.0), at, parts)


def shares(summary: Mapping[str, object]) -> dict[str, float]:
    """Mean shares of the pool by part."""
    slots = summary.get("kv_memory")
    known = slots if isinstance(slots, Mapping) else {}
    total = sum(known.values()) or 1.0
    return {part.key: known.get(part.key, 0.0) / total for part in PARTS}


def load(columns: Mapping[str, Floats], at: Sequence[float], unit: str, replicas: int) -> Panels:
    """Requests waiting and running, tokens in an iteration."""
    axis = Axis(f"time ({unit})")
    tokens = columns["batch_tokens"] / replicas
    lines = {
        "waiting": Line("", at, columns["waiting"].tolist(), "orange", "area"),
        "running": Line("", at, columns["running"].tolist(), "blue", "area"),
        "tokens": Line("", at, tokens.tolist(), "green", "area"),
    }
    panels = tuple(Curves(axis, Axis(name, "count"), (line,)) for name, line in lines.items())
    return Panels(panels, height=4.4)


def use_of_several(summaries: Sequence[tuple[str, Mapping[str, object]]]) -> Section | None:
    """Several runs: how each divides its memory, on average."""
    known = [(name, shares(summary)) for name, summary in summaries if summary.get("kv_memory")]
    if not known:
        return None
    parts = tuple(
        Part(part.label, [means[part.key] for _, means in known], part.colour) for part in PARTS
    )
    bars = Bars(
        Axis("mean share of the KV pool", "share", most=1.0),
        tuple(name for name, _ in known),
        parts,
        tuple(f"{share(means['used'])} used" for _, means in known),
    )
    caption = "Where KV-cache memory goes, on average over the run."
    return section("Memory side by side", Figure("kv_pools", caption, bars))
