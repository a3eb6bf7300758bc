"""GPUs, and what they cost: data with source and date in ``gpus.csv`` and ``prices.csv``."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kvsim.errors import unknown

FOLDER = Path(__file__).parent
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. Rates are dense peaks (no structured sparsity), per second."""

    name: str
    memory_bytes: int
    """What CUDA reports as total memory of the device, which is what engines divide. Where nobody
    was seen reporting it, the nominal figure in units of 10^9 bytes."""
    memory_gb: float
    """As printed on the data sheet."""
    memory_reported: bool
    """Whether ``memory_bytes`` was reported by the device (total capacity in PyTorch messages)."""
    bandwidth: float
    """Bytes per second of device memory."""
    bf16_flops: float
    fp8_flops: float | None
    fp4_flops: float | None
    int8_ops: float | None
    link_bandwidth: float | None
    """Bytes per second and direction between GPUs of a node (NVLink, Infinity Fabric)."""
    pcie_bandwidth: float | None
    """Bytes per second and direction to the host."""
    tdp_watts: float | None
    verified: str
    source: str
    date: str
    notes: str


@dataclass(frozen=True, slots=True)
class Price:
    """What one GPU costs by the hour, from one price list on one date."""

    provider: str
    sku: str
    gpu: str
    """As the list names it."""
    catalog_gpu: str | None
    """The GPU of the catalog, where the list is clear about it."""
    gpus: int | None
    """GPUs of the instance; None for a per-GPU figure."""
    usd_per_hour: float | None
    """Of the whole instance."""
    usd_per_gpu_hour: float
    region: str
    kind: str
    """``on-demand linux``, ``on-demand``, ``spot``, ``capacity block`` ..."""
    date: str
    verified: bool
    source: str
    notes: str


@dataclass(frozen=True, slots=True)
class Electricity:
    """A price of electric energy."""

    market: str
    usd_per_kwh: float
    date: str
    verified: bool
    source: str
    notes: str


def load_gpu(name: str) -> Gpu:
    """The GPU with this name or alias, in any case; ConfigError suggests the nearest otherwise.

    A device's own name for itself is one, too: ``NVIDIA A100 80GB PCIe``.
    """
    found = gpu_index().get(name.lower()) or gpus_by_words().get(words(name))
    if found is None:
        raise unknown("gpu", name, gpu_index())
    return found


def gpu_names() -> list[str]:
    """Full names of all GPUs of the catalog."""
    return list(dict.fromkeys(gpu.name for gpu in gpu_index().values()))


def prices(
    gpu: str | None = None, *, provider: str | None = None, kind: str | None = None
) -> list[Price]:
    """Prices in the order of the list, of one GPU (any of its names), provider or kind if given."""
    name = None if gpu is None else load_gpu(gpu).name
    return [
        price
        for price in all_prices()
        if name in (None, price.catalog_gpu)
        and provider in (None, price.provider)
        and (kind is None or price.kind.startswith(kind))
    ]


def regional_prices(gpu: str) -> list[Price]:
    """Prices of one GPU by region, from a snapshot of many lists.

    Each is a mean over the instances of a region, so not the price of any one.
    """
    name = load_gpu(gpu).name
    return [price for price in all_regional_prices() if price.catalog_gpu == name]


def electricity() -> list[Electricity]:
    """Prices of electric energy, for costs of ownership."""
    return [
        Electricity(
            row["market"],
            float(row["usd_per_kwh"]),
            row["date"],
            row["verified"] == "yes",
            row["source"],
            row["notes"],
        )
        for row in rows("electricity.csv")
    ]


@cache
def gpu_index() -> dict[str, Gpu]:
    """Every name in lower case, with its GPU."""
    index = {}
    for row in rows("gpus.csv"):
        gpu = gpu_from(row)
        for name in (gpu.name, *row["aliases"].split(";")):
            index[name.lower()] = gpu
    return index


UNSAID = frozenset({"nvidia", "geforce", "amd", "instinct", "edition", "hbm3", "hbm3e"})
"""Words of a device's name that the catalog's names go without."""


def words(name: str) -> frozenset[str]:
    """What tells a GPU from others, in whatever order it is said."""
    return frozenset(re.split(r"[\s-]+", name.strip().lower())) - UNSAID


@cache
def gpus_by_words() -> dict[frozenset[str], Gpu]:
    """Every name by its words, with its GPU."""
    return {words(name): gpu for name, gpu in gpu_index().items()}


def gpu_from(row: dict[str, str]) -> Gpu:
    """A GPU from its line."""
    nominal = float(row["memory_gb"])
    reported = number(row["usable_gib"])
    return Gpu(
        name=row["name"],
        memory_bytes=round(nominal * 1e9 if reported is None else reported * GIB),
        memory_gb=nominal,
        memory_reported=reported is not None,
        bandwidth=float(row["bandwidth_gb_s"]) * 1e9,
        bf16_flops=float(row["bf16_tflops"]) * 1e12,
        fp8_flops=number(row["fp8_tflops"], 1e12),
        fp4_flops=number(row["fp4_tflops"], 1e12),
        int8_ops=number(row["int8_tops"], 1e12),
        link_bandwidth=number(row["link_gb_s"], 1e9),
        pcie_bandwidth=number(row["pcie_gb_s"], 1e9),
        tdp_watts=number(row["tdp_w"]),
        verified=row["verified"],
        source=row["source"],
        date=row["date"],
        notes=row["notes"],
    )


@cache
def all_prices() -> tuple[Price, ...]:
    """Every line of the price list."""
    return tuple(map(price_of, rows("prices.csv")))


@cache
def all_regional_prices() -> tuple[Price, ...]:
    """Every line of the snapshot."""
    unknown = {"sku": "", "gpus": "", "usd_per_hour": ""}
    return tuple(
        price_of({**row, **unknown, "notes": f"mean of {row['entries']} entries of the list"})
        for row in rows("prices_by_region.csv")
    )


def price_of(row: dict[str, str]) -> Price:
    """One line of a price list."""
    return Price(
        provider=row["provider"],
        sku=row["sku"],
        gpu=row["gpu"],
        catalog_gpu=row["catalog_gpu"] or None,
        gpus=int(row["gpus"]) if row["gpus"] else None,
        usd_per_hour=number(row["usd_per_hour"]),
        usd_per_gpu_hour=float(row["usd_per_gpu_hour"]),
        region=row["region"],
        kind=row["kind"],
        date=row["date"],
        verified=row["verified"] == "yes",
        source=row["source"],
        notes=row["notes"],
    )


def number(text: str, unit: float = 1.0) -> float | None:
    """A figure of the table in base units; None where the table has none."""
    return float(text) * unit if text else None


def rows(name: str) -> Iterator[dict[str, str]]:
    """Lines of one of the catalog's tables."""
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)
