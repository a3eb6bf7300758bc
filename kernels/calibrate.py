"""Measures a GPU operator by operator into a profile, from which any model's step is composed.

The file is written again after every few seconds of measuring; a run that is broken off goes on
where it stopped. Shapes that are on no grid are timed in the same run and kept apart, to check the
profile by (``kvsim profile check``).
"""

from __future__ import annotations

import json
import os
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any

import torch
from triton.errors import TritonError

from kvsim.catalog.hardware import load_gpu
from kvsim.costs.operators import read_profile
from kvsim.costs.schema import SCHEMA_VERSION, check_profile
from kvsim.errors import ConfigError, unknown

from .operators import SOURCES
from .operators.ahead import compile_ahead
from .operators.arena import Arena
from .operators.collectives import collectives
from .operators.gemm import many_rows
from .operators.machine import sustained
from .operators.series import AXES, Scope, Series, Source
from .operators.timing import Stopwatch, Timing
from .provenance import clock, describe

ALONE = 0.01
"""Seconds of load before a shape that is held out: none of its kind came just before, and a card that
idles while a kernel is loaded lowers its clock."""
SAVE_EVERY = 5.0
"""Seconds between two writes of the file."""

Log = Callable[[str], None]
Profile = dict[str, Any]
Point = tuple[str, tuple[int | str, ...], int]
"""An operator, the values of its other axes, and ``x``."""


def calibrate(
    out: Path,
    *,
    gpu: str | None = None,
    device: str = "cuda",
    scope: Scope = "full",
    resume: bool = False,
    only: Sequence[str] = (),
    log: Log = print,
) -> Profile:
    """Measure the device and write the profile to ``out``.

    ``gpu`` is its name in the catalog, by default the one that the device gives itself. ``resume``
    keeps what ``out`` already holds; ``only`` names the families to measure (all if none).
    """
    families = chosen(only)
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "--device cuda: PyTorch sees no CUDA device here; --device cpu only tests"
        )
    began = time.perf_counter()
    profile = started(out, catalog_name(gpu, device), scope, resume)
    run = {
        "command": " ".join(["kvsim", *sys.argv[1:]]),
        "options": {"scope": scope, "only": list(only), "resume": resume},
        **describe(device),
        "clocks_mhz": {},
    }
    profile["runs"].append(run)
    if device == "cuda":
        compile_ahead(scope, [source.__name__ for source in families])
        log(f"{time.perf_counter() - began:6.1f} s  kernels compiled")
    measure(profile, families, arena_of(device, scope), Stopwatch(device), scope, out, log)
    for gpus in unlinked(profile, torch.cuda.device_count() if device == "cuda" else 1):
        for name, size, timing in collectives(gpus, scope, out.parent):
            add(profile["tables"], name, (gpus,), size, timing)
        save(profile, out)
    run["seconds"] = round(time.perf_counter() - began, 1)
    profile["complete"] = not lacking(profile)
    save(profile, out)
    return profile


def lacking(profile: Profile) -> list[str]:
    """Families that no run of the profile has measured to their end."""
    done = {name for run in profile["runs"] for name in run["clocks_mhz"]}
    return [source.__name__ for source in SOURCES if source.__name__ not in done]


def unlinked(profile: Profile, present: int) -> list[int]:
    """Numbers of GPUs, up to those present, of which the profile lacks a collective: 2, 4, 8, ..."""
    counts = {2**i for i in range(1, present.bit_length())} | {present} - {0, 1}
    known = [
        {one["at"][0] for one in profile["tables"].get(name, ())}
        for name in ("all_reduce", "all_gather", "send")
    ]
    return sorted(counts - set.intersection(*known))


def arena_of(device: str, scope: Scope) -> Arena:
    """Memory to measure on: gigabytes on a GPU, megabytes for a test."""
    if device == "cpu" or scope == "tiny":
        return Arena(device, weight_bytes=2**25, kv_bytes=2**24)
    return Arena(device, weight_bytes=2 * 2**30, kv_bytes=8 * 2**30)


def chosen(only: Sequence[str]) -> list[Source]:
    """The families with these names; all of them without names."""
    known = {source.__name__: source for source in SOURCES}
    for name in only:
        if name not in known:
            raise unknown("family", name, known)
    return [source for name, source in known.items() if not only or name in only]


def catalog_name(gpu: str | None, device: str) -> str:
    """The catalog's name of the GPU to be measured."""
    if gpu is not None:
        return load_gpu(gpu).name
    if device != "cuda":
        return "cpu"
    own = torch.cuda.get_device_name()
    try:
        return load_gpu(own).name
    except ConfigError:
        raise ConfigError(f"no GPU of the catalog is called {own!r}: name one with --gpu") from None


def started(out: Path, gpu: str, scope: Scope, resume: bool) -> Profile:
    """A new profile, or the unfinished one in ``out``."""
    if resume and out.exists():
        return unfinished(out, gpu, scope)
    return {
        "schema_version": SCHEMA_VERSION,
        "gpu": gpu,
        "scope": scope,
        "complete": False,
        "runs": [],
        "axes": {name: list(axes) for name, axes in AXES.items()},
        "unit": "microseconds",
        "failed": [],
        "tables": {},
        "held_out": {},
    }


def unfinished(out: Path, gpu: str, scope: Scope) -> Profile:
    """The profile in ``out``; ConfigError if it is none, another GPU's, or of another scope."""
    profile: Profile = read_profile(out)
    check_profile(profile, str(out))
    if profile["gpu"] != gpu:
        raise ConfigError(f"{out}: gpu is {profile['gpu']!r}: expected {gpu!r}, which is measured")
    if profile["scope"] != scope:
        raise ConfigError(
            f"{out}: scope is {profile['scope']!r}: expected {scope!r}, which is measured"
        )
    axes = profile["axes"] | {name: list(axes) for name, axes in AXES.items()}
    return {**profile, "axes": axes, "complete": False}


def measure(
    profile: Profile,
    families: Sequence[Source],
    arena: Arena,
    watch: Stopwatch,
    scope: Scope,
    out: Path,
    log: Log,
) -> None:
    """Time every series that the profile does not have yet."""
    clocks = profile["runs"][-1]["clocks_mhz"]
    saved = began = time.perf_counter()
    for source in families:
        for held_out in (False, True):
            tables = profile["held_out" if held_out else "tables"]
            kept, grid = points(tables), points(profile["tables"])
            for series in source(arena, scope, held_out):
                if held_out:
                    series = alone(series, grid)
                tried = tuple(f"{series.operator} {series.at} {x}: " for x in series.xs)
                before = [line for line in profile["failed"] if not line.startswith(tried)]
                profile["failed"] = before + run_series(tables, series, watch, kept)
                if time.perf_counter() - saved > SAVE_EVERY:
                    save(profile, out)
                    saved = time.perf_counter()
        clocks[source.__name__] = clock(watch.device)
        log(f"{time.perf_counter() - began:6.1f} s  {source.__name__}")
    save(profile, out)
    if many_rows in families and "gemm_sustained" not in profile["tables"]:
        for shape, mark, timing in sustained(arena, scope):
            add(profile["tables"], "gemm_sustained", shape, mark, timing)


def alone(series: Series, grid: Container[Point]) -> Series:
    """A series of held-out shapes without those that happen to be on the grid."""
    xs = tuple(x for x in series.xs if (series.operator, series.at, x) not in grid)
    heat = series.heat if series.rest else max(series.heat, ALONE)
    return series._replace(xs=xs, heat=heat)


def points(tables: Profile) -> set[Point]:
    """All points of some tables."""
    return {
        (operator, tuple(one["at"]), x)
        for operator, table in tables.items()
        for one in table
        for x in one["x"]
    }


def run_series(
    tables: Profile, series: Series, watch: Stopwatch, kept: Container[Point]
) -> list[str]:
    """Time the points of a series that are missing, or turn on the host and are not from before.

    Returns what the machine refused, and why.
    """
    failed = []
    done = next((s["x"] for s in tables.get(series.operator, ()) if s["at"] == list(series.at)), ())
    for x in series.xs:
        if x in done and (series.graph or (series.operator, series.at, x) in kept):
            continue
        try:
            work = series.prepare(x)
            timed = (
                watch.time(work, heat=series.heat, rest=series.rest)
                if series.graph
                else watch.time_events(work)
            )
        except (RuntimeError, TritonError) as error:
            failed.append(f"{series.operator} {series.at} {x}: {str(error).strip()[:200]}")
            continue
        add(tables, series.operator, series.at, x, timed)
    return failed


def add(tables: Profile, operator: str, at: tuple[int | str, ...], x: int, timing: Timing) -> None:
    """Put a point into its table, in order of ``x``; of two at the same place the faster stays."""
    table = tables.setdefault(operator, [])
    series = next((s for s in table if s["at"] == list(at)), None)
    if series is None:
        series = {"at": list(at), "x": [], "median": [], "p10": [], "p90": [], "repeats": []}
        table.append(series)
    place = bisect_left(series["x"], x)
    width = int(x in series["x"])
    if width and timing.median >= series["median"][place]:
        return
    values = (x, *(float(f"{value:.4g}") for value in timing[:3]), timing.repeats)
    for name, value in zip(("x", "median", "p10", "p90", "repeats"), values, strict=True):
        series[name][place : place + width] = [value]


def save(profile: Profile, out: Path) -> None:
    """Write the file whole or not at all."""
    part = out.with_suffix(".part")
    part.write_text(dumped(profile), encoding="utf-8")
    os.replace(part, out)


def dumped(profile: Profile) -> str:
    """JSON with one series a line."""
    head = {name: value for name, value in profile.items() if name not in ("tables", "held_out")}
    parts = [f'"{name}":{json.dumps(value)}' for name, value in head.items()]
    for name in ("tables", "held_out"):
        tables = (
            f'"{operator}":[\n' + ",\n".join(json.dumps(s, separators=(",", ":")) for s in series)
            + "\n]"
            for operator, series in profile[name].items()
        )  # fmt: skip
        parts.append(f'"{name}":{{\n' + ",\n".join(tables) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
