"""Time the kernels on the GPU at hand: ``python -m kvsim.kernels.bench --out reports/kernels``.

Writes ``OUT.json`` (every figure, with provenance) and ``OUT.md`` (tables). ``--reference`` names a
file of another library's times on the same card, ``{"rows": [{"kind", "H", "Hk", "D", "page",
"dtype", "B", "ctx", "q", "ms"}]}``; its shapes are timed and the ratios shown.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from .bench_attention import (
    Decoding,
    cascade_row,
    decode_row,
    mla_row,
    prefill_row,
    skewed_row,
)
from .bench_memory import DEVICE, ROTATION
from .bench_moves import moves
from .bench_report import markdown
from .bench_row import Row
from .provenance import describe
from .timing import time_launches

REFERENCE_DTYPES = {"torch.bfloat16": "bf16", "torch.float8_e4m3fn": "fp8"}


def main() -> None:
    """Time everything and write the two reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("reports/kernels"))
    parser.add_argument("--reference", type=Path)
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    others = json.loads(arguments.reference.read_text()) if arguments.reference else {}
    rows = []
    for row in everything(others.get("rows", [])):
        rows.append(row.time())
        print(row.kind, row.shape, f"{row.median:.1f} us", row.reference or "", flush=True)
    report = {
        "provenance": provenance(),
        "ceilings": ceilings(),
        "rows": [row.figures() for row in rows],
    }
    arguments.out.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    arguments.out.with_suffix(".md").write_text(markdown(report))


def provenance() -> dict[str, Any]:
    """Where the figures come from."""
    return {
        **describe("cuda"),
        "command": "python -m kvsim.kernels.bench " + " ".join(sys.argv[1:]),
        "method": "CUDA-graph replay of one launch between two events, inputs rotating through"
        f" {ROTATION / 1e6:.0f} MB or more where the shape allows; median",
    }


def ceilings() -> dict[str, float]:
    """What this card reaches: bytes per second copied (read plus written) and read, bf16 FLOP/s."""
    source = torch.empty(2**30, dtype=torch.int32, device=DEVICE).random_()
    target = torch.empty_like(source)
    copied = time_launches([lambda: torch.bitwise_not(source, out=target)], repeats=10).median
    floats = source.view(torch.float32)
    read = time_launches([lambda: floats.sum()], repeats=10).median
    a, b = torch.randn(2, 8192, 8192, device=DEVICE, dtype=torch.bfloat16)
    product = time_launches([lambda: a @ b], repeats=10).median
    size = source.nbytes
    return {"copy": 2 * size / copied, "read": size / read, "bf16": 2 * 8192**3 / product}


def everything(entries: list[dict[str, Any]]) -> Iterator[Row]:
    """All rows, those of the reference first."""
    for entry in entries:
        compared = entry["ms"] * 1e3
        if entry["kind"] == "decode":
            dtype = REFERENCE_DTYPES[entry["dtype"]]
            way = Decoding(entry["H"], dtype, entry["page"])
            yield decode_row(entry["B"], entry["ctx"], way, compared=compared)
        else:
            yield prefill_row(entry["q"], entry["ctx"], compared=compared)
    yield from variants()
    yield from moves()


def variants() -> Iterator[Row]:
    """What the reference does not have."""
    for dtype, token_scales in (("fp8", True), ("int8", False), ("int8", True)):
        yield decode_row(128, 4096, Decoding(dtype=dtype, token_scales=token_scales))
    yield decode_row(128, 4096, Decoding(block_size=1))
    yield skewed_row()
    for window in (1024, 4096):
        yield decode_row(32, 65536, Decoding(window=window))
    for heads in (16, 128):
        for batch, context in ((1, 4096), (1, 65536), (32, 4096), (128, 4096), (128, 16384)):
            yield mla_row(batch, context, heads)
    for batch, prefix, suffix in ((64, 8192, 256), (256, 8192, 256), (256, 32768, 512)):
        yield cascade_row(batch, prefix, suffix)


if __name__ == "__main__":
    main()
