"""Time the kernels on the GPU at hand: ``python -m kvsim.kernels.bench --out reports/kernels``.

Writes ``OUT.json`` (every figure, with provenance) and ``OUT.md`` (tables). ``--reference`` names a
file of another library's times on the same card, ``{"rows": [{"kind", "H", "Hk", "D", "page",
"dtype", "B", "ctx", "q", "ms"}]}``; its shapes are timed and the ratios shown.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import triton

from . import reference
from .bench_report import markdown
from .cascade import cascade_decode
from .decode import decode
from .mla import mla_decode
from .move import copy_blocks, gather_blocks, load, offload
from .paged import EIGHT_BIT, PagedKV, empty_kv
from .prefill import prefill
from .timing import Spread, time_chain, time_launches
from .write import write_kv

Launch = Callable[[], object]
DEVICE = "cuda"
ROTATION = 300e6
"""Bytes that a point's inputs take together: several times an L2 of 60 MB."""
TOLERANCE = 1e-2
"""Relative error of a result in bfloat16."""
DTYPES = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn, "int8": torch.int8}
REFERENCE_DTYPES = {"torch.bfloat16": "bf16", "torch.float8_e4m3fn": "fp8"}


@dataclass
class Row:
    """One shape. Times are microseconds; ``chained`` is the time among many launches in one graph."""

    kind: str
    shape: dict[str, int | str]
    bytes: float
    """Device (or host link) bytes that must move: each input read once, each output written once."""
    flops: float
    median: float = 0.0
    p10: float = 0.0
    p90: float = 0.0
    repeats: int = 0
    chained: float | None = None
    reference: float | None = None
    error: float | None = None
    """Relative to float64, of one sequence; a wrong kernel's speed means nothing."""
    launches: list[Launch] = field(default_factory=list)

    def time(self) -> Row:
        """Run it, and forget how."""
        assert self.error is None or self.error < TOLERANCE, f"{self.kind} {self.shape} is wrong"
        self.median, self.p10, self.p90, self.repeats = _microseconds(time_launches(self.launches))
        if len(self.launches) > 1:
            self.chained = _microseconds(time_chain(self.launches)).median
        self.launches = []
        return self

    def figures(self) -> dict[str, object]:
        """All of it but the launches."""
        return {name: value for name, value in asdict(self).items() if name != "launches"}


def main() -> None:
    """Time everything and write the two reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("reports/kernels"))
    parser.add_argument("--reference", type=Path)
    arguments = parser.parse_args()
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
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    arguments.out.with_suffix(".md").write_text(markdown(report))


def provenance() -> dict[str, str | int]:
    """Where the figures come from."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "driver": driver(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "command": "python -m kvsim.kernels.bench " + " ".join(sys.argv[1:]),
        "method": "CUDA-graph replay of one launch between two events, inputs rotating through"
        f" {ROTATION / 1e6:.0f} MB or more where the shape allows; median",
    }


def driver() -> str:
    """Version of the GPU's driver, as the kernel module reports it."""
    file = Path("/proc/driver/nvidia/version")
    found = re.search(r"\d+\.\d+[.\d]*", file.read_text()) if file.exists() else None
    return found[0] if found else "unknown"


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
        if entry["kind"] == "decode":
            yield decode_row(
                entry["B"], entry["ctx"], heads=entry["H"],
                dtype=REFERENCE_DTYPES[entry["dtype"]], block_size=entry["page"],
                compared=entry["ms"] * 1e3,
            )  # fmt: skip
        else:
            yield prefill_row(entry["q"], entry["ctx"], compared=entry["ms"] * 1e3)
    yield from variants()
    yield from moves()


def variants() -> Iterator[Row]:
    """What the reference does not have."""
    for dtype, token_scales in (("fp8", True), ("int8", False), ("int8", True)):
        yield decode_row(128, 4096, dtype=dtype, token_scales=token_scales)
    yield decode_row(128, 4096, block_size=1)
    yield skewed_row()
    for window in (1024, 4096):
        yield decode_row(32, 65536, window=window)
    for heads in (16, 128):
        for batch, context in ((1, 4096), (1, 65536), (32, 4096), (128, 4096), (128, 16384)):
            yield mla_row(batch, context, heads)
    for batch, prefix, suffix in ((64, 8192, 256), (256, 8192, 256), (256, 32768, 512)):
        yield from cascade_rows(batch, prefix, suffix)


def memory(tokens: int, block_size: int, dtype: str, *, token_scales: bool = False) -> PagedKV:
    """KV memory of random numbers for 8 kv heads of 128."""
    kv = empty_kv(
        -(-tokens // block_size), block_size, 8, 128, dtype=DTYPES[dtype], token_scales=token_scales
    )
    for stored, scale in ((kv.k, kv.k_scale), (kv.v, kv.v_scale)):
        normal = torch.empty(stored.shape, dtype=torch.bfloat16, device=DEVICE)
        stored.copy_(normal.normal_(0, 30 if stored.dtype in EIGHT_BIT else 1))
        if scale is not None:
            scale.uniform_(0.01, 0.02)
    return kv


def tables(kv: PagedKV, lengths: list[int], size: float) -> list[torch.Tensor]:
    """Block tables of random blocks, disjoint, as many as it takes to outgrow the cache."""
    counts = [-(-n // kv.block_size) for n in lengths]
    sets = max(1, min(48, math.ceil(ROTATION / size), kv.num_blocks // sum(counts)))
    shuffled = torch.randperm(kv.num_blocks, device=DEVICE).int()
    found = []
    for chunk in shuffled.split(sum(counts))[:sets]:
        table = torch.zeros((len(lengths), max(counts)), dtype=torch.int32, device=DEVICE)
        for row, blocks in zip(table, chunk.split(counts), strict=True):
            row[: len(blocks)] = blocks
        found.append(table)
    return found


def decode_row(
    batch: int,
    context: int,
    *,
    heads: int = 32,
    dtype: str = "bf16",
    block_size: int = 16,
    token_scales: bool = False,
    window: int = 0,
    compared: float | None = None,
) -> Row:
    """Decode of equal contexts."""
    seen = min(context, window) if window else context
    row = batch_row(
        [context] * batch, [seen] * batch, heads, dtype, block_size, token_scales, window
    )
    row.shape |= {"context": context}
    row.reference = compared
    return row


def skewed_row() -> Row:
    """127 contexts of 1k and one of 128k: the bytes of a batch of 2k contexts."""
    lengths = [131072] + [1024] * 127
    row = batch_row(lengths, lengths, 32, "bf16", 16, False, 0)
    row.shape |= {"context": "127 x 1024, 1 x 131072"}
    return row


def batch_row(
    lengths: list[int],
    seen: list[int],
    heads: int,
    dtype: str,
    block_size: int,
    token_scales: bool,
    window: int,
) -> Row:
    """Decode of any contexts, ``seen`` tokens of each."""
    batch = len(lengths)
    size = sum(seen) * 2 * 8 * (128 * DTYPES[dtype].itemsize + 4 * token_scales)
    tokens = max(sum(lengths), min(48 * sum(lengths), int(ROTATION / size * sum(lengths)) + 1))
    kv = memory(tokens + len(lengths) * block_size, block_size, dtype, token_scales=token_scales)
    q = torch.randn(batch, heads, 128, device=DEVICE, dtype=torch.bfloat16)
    sizes = torch.tensor(lengths, dtype=torch.int32, device=DEVICE)
    shape: dict[str, int | str] = {"batch": batch, "heads": f"{heads}/8", "kv": dtype}
    shape |= {"block": block_size, "scales": "token" if token_scales else "head", "window": window}
    row = Row("decode", shape, size + 2 * q.nbytes, 4 * sum(seen) * heads * 128)
    choices = tables(kv, lengths, size)
    row.launches = [
        lambda table=table: decode(q, kv, table, sizes, window=window)  # type: ignore[misc]
        for table in choices
    ]
    last = (choices[-1][-1:], sizes[-1:])
    expected, _ = reference.decode(q[-1:], kv, *last, scale=128**-0.5, window=window)
    row.error = relative_error(decode(q, kv, choices[-1], sizes, window=window)[0][-1:], expected)
    return row


def prefill_row(new: int, context: int, *, compared: float | None = None) -> Row:
    """One chunk of ``new`` tokens that ends a context."""
    kv = memory(context, 16, "bf16")
    (table,) = tables(kv, [context], math.inf)
    q = torch.randn(new, 32, 128, device=DEVICE, dtype=torch.bfloat16)
    starts = torch.tensor([0, new], dtype=torch.int32, device=DEVICE)
    sizes = torch.tensor([context], dtype=torch.int32, device=DEVICE)
    pairs = new * (context - new) + new * (new + 1) / 2
    row = Row("prefill", {"new": new, "context": context, "heads": "32/8", "kv": "bf16"},
              context * 4096 + 2 * q.nbytes, 4 * pairs * 32 * 128)  # fmt: skip
    row.launches = [lambda: prefill(q, kv, table, starts, sizes)]
    row.reference = compared
    k, v = reference.read(kv, table[0], 0, context)
    expected, _ = reference.attention(q[-64:], k, v, scale=128**-0.5)
    row.error = relative_error(prefill(q, kv, table, starts, sizes)[0][-64:], expected)
    return row


def mla_row(batch: int, context: int, heads: int) -> Row:
    """Decode over latent rows of 512 + 64."""
    size = batch * context * 576 * 2
    sets = max(1, min(48, math.ceil(ROTATION / size)))
    cache = torch.randn(sets * batch * context // 16, 16, 576, device=DEVICE, dtype=torch.bfloat16)
    blocks = torch.randperm(cache.shape[0], device=DEVICE).int().view(sets, batch, context // 16)
    q = torch.randn(batch, heads, 576, device=DEVICE, dtype=torch.bfloat16)
    sizes = torch.full((batch,), context, dtype=torch.int32, device=DEVICE)
    row = Row("mla decode", {"batch": batch, "context": context, "heads": heads},
              size + q.nbytes * 2, 2 * batch * context * heads * (576 + 512))  # fmt: skip
    row.launches = [
        lambda table=table: mla_decode(q, cache, table, sizes, rank=512, scale=0.04)  # type: ignore[misc]
        for table in blocks
    ]
    one = (q[-1:], cache, blocks[0, -1:], sizes[-1:])
    expected, _ = reference.mla_decode(*one, rank=512, scale=0.04)
    found, _ = mla_decode(q, cache, blocks[0], sizes, rank=512, scale=0.04)
    row.error = relative_error(found[-1:], expected)
    return row


def cascade_rows(batch: int, prefix: int, suffix: int) -> Iterator[Row]:
    """A shared prefix read once; the reference is plain decode of the same sequences."""
    kv = memory(prefix + batch * suffix, 16, "bf16")
    (table,) = tables(kv, [prefix + batch * suffix], math.inf)
    common, own = table[:, : prefix // 16], table[:, prefix // 16 :].view(batch, -1)
    q = torch.randn(batch, 32, 128, device=DEVICE, dtype=torch.bfloat16)
    length = torch.tensor([prefix], dtype=torch.int32, device=DEVICE)
    sizes = torch.full((batch,), suffix, dtype=torch.int32, device=DEVICE)
    whole = torch.cat([common.expand(batch, -1), own], 1)
    plain = time_launches([lambda: decode(q, kv, whole, sizes + prefix)])
    shape: dict[str, int | str] = {"batch": batch, "prefix": prefix, "suffix": suffix}
    row = Row("cascade", shape, (prefix + batch * suffix) * 4096 + 2 * q.nbytes,
              4 * batch * (prefix + suffix) * 32 * 128)  # fmt: skip
    row.launches = [lambda: cascade_decode(q, kv, common, length, own, sizes)]
    row.reference = _microseconds(plain).median
    yield row


def moves() -> Iterator[Row]:
    """Writing, copying, and trips to the host."""
    for dtype in ("bf16", "fp8"):
        yield write_row(2048, dtype)
        yield write_row(128, dtype)
    planes = torch.empty(64, 8192, 16, 8, 128, dtype=torch.bfloat16, device=DEVICE)
    shuffled = torch.randperm(8192, device=DEVICE).int()
    block = planes[:, 0].nbytes
    for count in (1, 16, 256):
        source, target = shuffled[:count], shuffled[count : 2 * count]
        row = Row("block copy", {"blocks": count, "bytes": block}, 2 * count * block, 0)
        row.launches = [lambda a=source, b=target: copy_blocks(planes, a, b)]  # type: ignore[misc]
        yield row
    for count in (1, 16, 64, 256):
        yield from host_rows(planes, shuffled[:count])


def write_row(tokens: int, dtype: str) -> Row:
    """New tokens' KV into random slots."""
    kv = memory(65536, 16, dtype)
    keys, values = torch.randn(2, tokens, 8, 128, device=DEVICE, dtype=torch.bfloat16)
    slots = torch.randperm(65536, device=DEVICE)[:tokens].int()
    size = 2 * tokens * 8 * 128 * (2 + DTYPES[dtype].itemsize)
    row = Row("kv write", {"tokens": tokens, "kv": dtype}, size, 0)
    row.launches = [lambda: write_kv(keys, values, kv, slots)]
    return row


def host_rows(planes: torch.Tensor, blocks: torch.Tensor) -> Iterator[Row]:
    """Blocks of all layers to pinned memory and back: through staging, and straight."""
    shape = (len(blocks), planes.shape[0], *planes.shape[2:])
    staging = torch.empty(shape, dtype=planes.dtype, device=DEVICE)
    host = torch.empty(shape, dtype=planes.dtype, pin_memory=True)
    ways: dict[str, Launch] = {
        "to host, staged": lambda: offload(planes, blocks, staging, host),
        "to host, direct": lambda: gather_blocks(planes, blocks, host),
        "from host, staged": lambda: load(host, blocks, staging, planes),
    }
    for name, launch in ways.items():
        row = Row(name, {"blocks": len(blocks), "bytes": staging[0].nbytes}, staging.nbytes, 0)
        row.launches = [launch]
        yield row


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """||found - expected|| / ||expected||."""
    return float((found.double() - expected).norm() / expected.norm())


def _microseconds(seconds: Spread) -> Spread:
    median, p10, p90, repeats = seconds
    return Spread(1e6 * median, 1e6 * p10, 1e6 * p90, repeats)


if __name__ == "__main__":
    main()
